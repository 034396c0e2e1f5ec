//! Builds the running gateway from its settings: the state that outlives a reload ([`ProcessState`]), and the parts that
//! are built anew for each configuration ([`BuiltGeneration`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit_log::note::{Checkpoint, NoteError, NoteSigner, NoteVerifier};
use detection::content::Honeytoken;
use policy::definition::offer::ItemKind;
use policy::engine::pipeline::Policy;
use policy_core::schema::SchemaCache;
use rustls::ClientConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::audit::lines::{Colours, TerminalLines};
use crate::audit::spool::Spool;
use crate::audit::{
    AuditError, AuditSink, CheckpointFile, CheckpointPolicy, Delivery, DeliveryTarget, FileSink,
    Journal, JournalParts, Observer, RecordExporter, Rendering, ResumePolicy, ResumedChain,
    SinkSlot, can_be_continued, deliver, disagreement, examine, last_kept, left_behind,
    write_to_stdout,
};
use crate::base::bounded::BoundedMap;
use crate::base::clock::{Clock, SystemClock};
use crate::base::secret::Secret;
use crate::base::sha256::sha256;
use crate::base::task::Tasks;
use crate::config::quota::Quotas;
use crate::config::selftest_fixtures;
use crate::config::settings::cases::KnownCallers;
use crate::config::settings::lockfile::LockError;
use crate::config::settings::revoked::RevokedError;
use crate::config::settings::{
    self, AuthScheme, ConfigProblems, ConfigRemark, Limits, ListenerSettings, LogFormat,
    OtlpProtocol, OtlpSecret, OtlpSignal, Program, ServerSettings, ServerTransport,
    ServiceEndpoint, Settings, SinkTarget, SyslogAddress, TerminalUse, VariableValue,
};
use crate::crypto::sealer::{SealError, Sealer};
use crate::edge::admission::Admission;
use crate::edge::tls::{Acceptor, TlsError};
use crate::exchange::{
    CheckedClients, DecoyLocks, Gateway, HistoryObserver, ParkedCall, Route, SelectionServices,
};
use crate::identity::Authenticator;
use crate::identity::resource::{CertificateBinding, ProtectedResource};
use crate::mcp::gateway_path::GatewayId;
use crate::mcp::wire::Id;
use crate::metrics::Metrics;
use crate::net::http_client::FetchError;
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::guardrail::GuardrailClient;
use crate::outbound::otlp::{OtlpClient, OtlpCredential};
use crate::outbound::secrets::{self, LiveSecret, SecretStore};
use crate::outbound::webhook::Webhook;
use crate::pins::PinMonitor;
use crate::process::sandbox::{self, SandboxError};
use crate::serve::generation::{ConfiguredNames, Generation, Sandboxes};
use crate::session::approvals::{
    ApprovalFileError, ApprovalStore, Approvals, FileApprovals, MemoryApprovals,
};
use crate::session::call_budgets::CallBudgets;
use crate::session::channel_store::ChannelStore;
use crate::session::flow_store::{FlowBounds, FlowStore};
use crate::session::loaded_tools::{LoadBounds, LoadedTools};
use crate::session::lock_store::LockStore;
use crate::session::rate_limiter::RateLimiter;
use crate::session::repeated_calls::RepeatedCalls;
use crate::session::result_store::ResultStore;
use crate::session::selection_history::SelectionHistory;
use crate::session::state::SessionStates;
use crate::session::task_questions::TaskQuestions;
use crate::session::{SessionKey, Sessions};
use crate::telemetry::{Collectors, Telemetry};
use crate::upstream::{Upstream, UpstreamError, server_identity};

/// The reason why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket cannot be bound.
    #[error("could not listen on `{address}`")]
    Bind {
        /// The address of the socket.
        address: SocketAddr,
        /// The configuration key that names the address, as a phrase.
        key: Box<str>,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// An audit sink cannot be opened.
    #[error("could not open the audit sink `{name}`")]
    Sink {
        /// The name of the sink.
        name: Box<str>,
        /// The error of the sink.
        #[source]
        cause: io::Error,
    },
    /// The first audit record cannot be written.
    #[error("could not write the first audit record")]
    Audit(#[source] AuditError),
    /// The audit log does not match its last checkpoint.
    #[error(
        "the audit log is not the one that the last checkpoint in `{file}` was made of: {what}; put it back, or move \
         away what is left of it and begin a new one with `portcullis run --new-log`"
    )]
    Log {
        /// The file of checkpoints.
        file: Box<str>,
        /// The mismatch, as a phrase.
        what: Box<str>,
    },
    /// A new log was requested, but no log is missing.
    #[error(
        "`--new-log` is for one start after a log was moved away; nothing is missing here, so start without it"
    )]
    NewLog,
    /// A session key is malformed.
    #[error("a session key is not 32 bytes in hexadecimal")]
    SessionKey(#[source] SealError),
    /// An upstream server cannot be set up.
    #[error("could not set up the server `{name}`")]
    Server {
        /// The name of the server.
        name: Box<str>,
        /// The error of the upstream server.
        #[source]
        cause: UpstreamError,
    },
    /// The required sandbox of a program is not available.
    #[error("cannot set up the sandbox of server `{name}`")]
    Sandbox {
        /// The name of the server.
        name: Box<str>,
        /// The missing part of the sandbox.
        #[source]
        cause: SandboxError,
    },
    /// Every log file for single-client processes is in use by another process.
    #[error(
        "{0} processes of this configuration serve one client each, which is the most there can be"
    )]
    Crowded(u8),
    /// A thread cannot be started.
    #[error("could not start the threads")]
    Threads(#[source] io::Error),
    /// The lockfile cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file of revocations cannot be read.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
    /// The file of approvals cannot be used.
    #[error(transparent)]
    Approvals(#[from] ApprovalFileError),
    /// A honeytoken cannot be searched for.
    #[error("the honeytoken `{0}` has to have 16 to 1,024 bytes")]
    Honeytoken(Box<str>),
    /// A secret, a certificate or a network resource cannot be used.
    #[error(transparent)]
    World(#[from] EnvironmentError),
    /// A server is a program, and the application that uses the gateway does not start programs.
    #[error(
        "the server `{0}` is a program, and this application starts none: let its `main` call \
         `gateway::control::helper::begin` first"
    )]
    NoPrograms(Box<str>),
    /// A listener has TLS, and an application serves its connections.
    #[error(
        "the listener `{0}` has `tls`, but the application that mounts the gateway serves its connections: remove `tls`, \
         and name the URL of the application in `publicUrl`"
    )]
    MountedTls(Box<str>),
    /// The TLS of a listener cannot be set up.
    #[error("could not set up the TLS of the listener `{name}`")]
    Tls {
        /// The name of the listener.
        name: Box<str>,
        /// The error in its TLS settings.
        #[source]
        cause: TlsError,
    },
}

impl StartError {
    /// Whether a secret of the configuration is unavailable; it is reported like an invalid configuration.
    #[must_use]
    pub const fn is_of_a_secret(&self) -> bool {
        matches!(
            self,
            Self::World(EnvironmentError::Secret(_))
                | Self::Server {
                    cause: UpstreamError::Environment(
                        EnvironmentError::Secret(_) | EnvironmentError::Repeated { .. }
                    ),
                    ..
                }
        )
    }

    /// Advice on how to fix the problem, if the error does not give it already.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Bind { key, .. } if self.is_taken() => Some(format!(
                "another process listens there, which `ss -ltnp` names: stop it, or write another port in {key}"
            )),
            Self::Sink { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                Some("make the folder, for the user that the gateway runs as".to_owned())
            }
            Self::Sink { cause, .. }
                if matches!(
                    cause.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Some(
                    "the user that the gateway runs as has to be able to write the file, and to make one in its \
                     folder: give both to that user, or name another file; `portcullis doctor` looks at them"
                        .to_owned(),
                )
            }
            _ => None,
        }
    }

    /// Whether the address is already in use.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Bind { cause, .. } if cause.kind() == io::ErrorKind::AddrInUse)
    }
}

/// The state that outlives a reload of the configuration.
pub struct ProcessState {
    /// All tasks of the process.
    pub tasks: Tasks,
    /// The clock of the process.
    pub clock: Arc<dyn Clock>,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// The audit journal of the process.
    pub journal: Arc<Journal>,
    /// Tracing and export of telemetry.
    pub telemetry: Arc<Telemetry>,
    /// The secrets that are in use.
    pub secrets: Arc<SecretStore>,
    sealer: Arc<Sealer>,
    sessions: Arc<Sessions>,
    session_states: Arc<SessionStates>,
    parked_calls: Arc<BoundedMap<[u8; 16], ParkedCall>>,
    cancellations: Arc<BoundedMap<(SessionKey, Id), CancellationToken>>,
    result_store: Arc<ResultStore>,
    flow_store: Arc<FlowStore>,
    loaded_tools: Arc<LoadedTools>,
    channel_store: Arc<ChannelStore>,
    /// Questions to people, and their answers.
    pub approvals: Arc<Approvals>,
    /// The file in which they are kept.
    pub approval_file: Option<PathBuf>,
    locks: Arc<LockStore>,
    quotas: Arc<Quotas>,
    /// Cache of compiled schemas of tools.
    compiled: Arc<SchemaCache>,
    rate_limiter: Arc<RateLimiter>,
    call_budgets: Arc<CallBudgets>,
    repeated_calls: Arc<RepeatedCalls>,
    selection_history: Arc<SelectionHistory>,
    task_questions: Arc<TaskQuestions>,
    revocations_changed: watch::Sender<()>,
    /// The key of marks in content.
    key: [u8; 32],
    /// The id in the path of requests.
    gateway_id: GatewayId,
    /// The address and TLS of each listener, in the order of the configuration.
    pub bound: Vec<BoundListener>,
    /// The limits of the configuration.
    pub limits: Limits,
}

/// Most bytes of the names that callers have found, as estimated.
const LOADED_BYTES: usize = 16 * 1024 * 1024;

/// The bounds on what is remembered of flows.
const fn flow_bounds(limits: &Limits, lifetime: Duration) -> FlowBounds {
    FlowBounds {
        flows: limits.flows,
        values: limits.flow_values,
        memory: limits.flow_memory,
        window: limits.flow_window,
        session: lifetime,
    }
}

/// The bounds of what callers have found: as for flows, which are told apart alike.
const fn load_bounds(limits: &Limits) -> LoadBounds {
    LoadBounds { lists: limits.flows, bytes: LOADED_BYTES, idle: limits.flow_window }
}

/// A listener whose socket is bound, by the gateway or by an application that mounts it.
pub struct BoundListener {
    /// The address of the socket; the configured one if an application binds it.
    pub address: SocketAddr,
    /// Its TLS, if the configuration has any.
    pub acceptor: Option<Arc<Acceptor>>,
}

impl fmt::Debug for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessState").field("bound", &self.bound.len()).finish_non_exhaustive()
    }
}

/// A configuration that was built, and does not serve yet.
#[derive(Debug)]
pub struct BuiltGeneration {
    /// The generation that would take effect.
    pub generation: Generation,
    /// The digest of its text.
    pub digest: String,
    /// What is started when it takes effect.
    pub work: GenerationWork,
}

/// The background work of a configuration, which includes the first contact with its servers: see
/// [`ProcessState::begin`].
#[derive(Debug)]
pub struct GenerationWork {
    gateway: Arc<Gateway>,
    pin_monitor: Arc<PinMonitor>,
    upstreams: Vec<Arc<Upstream>>,
    /// The upstream servers that are started as programs.
    programs: Vec<ServerSettings>,
    names: BTreeSet<Arc<str>>,
    /// Remarks that are logged when it takes effect.
    remarks: Vec<ConfigRemark>,
}

/// The place from which the configuration is read again.
pub trait SettingsSource: fmt::Debug + Send + Sync {
    /// Returns the current text of the configuration file.
    ///
    /// # Errors
    /// If it cannot be read.
    fn text(&self) -> io::Result<String>;
    /// Compiles the settings in `text`.
    ///
    /// # Errors
    /// All problems of the configuration.
    fn settings(&self, text: &str) -> Result<Settings, ConfigProblems>;
}

/// Who accepts the connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOwner {
    /// The gateway, at the addresses of its listeners.
    Gateway,
    /// An application that mounts the gateway as a service.
    Application,
}

/// The store of approvals: a file, if the configuration names one.
fn approval_store(
    settings: &Settings,
    clock: &dyn Clock,
) -> Result<Box<dyn ApprovalStore>, StartError> {
    Ok(match &settings.approval_file {
        None => Box::new(MemoryApprovals::default()),
        Some(file) => Box::new(FileApprovals::open(file, &settings.approvals, clock)?),
    })
}

/// Builds the state that outlives a reload, and binds the sockets if the gateway accepts connections.
///
/// # Errors
/// If a socket, a sink, a key or a certificate cannot be used.
pub fn lasting(
    settings: &Settings,
    owner: ConnectionOwner,
) -> Result<(ProcessState, Vec<TcpListener>), StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (tasks, limits) = (Tasks::default(), settings.limits);
    let secure = settings.listeners.iter().filter(|one| one.tls.is_some()).map(|one| &*one.name);
    let metrics = Metrics::new(clock.now()).with_certificates(secure);
    let quotas = Arc::new(Quotas::new(&limits, &settings.callers));
    let metrics = metrics.with_inspections(tasks.offload().counts());
    let compiled =
        Arc::new(SchemaCache::new(limits.schema_memory, limits.schema_memory_per_server));
    let metrics = metrics.with_answers(Arc::clone(&quotas.answers));
    let metrics = metrics.with_lists(Arc::clone(&quotas.lists));
    let metrics = metrics.with_ceiling(Arc::clone(&quotas.ceiling));
    let metrics = Arc::new(metrics.with_schemas(Arc::clone(&compiled)));
    let counts = Arc::clone(&metrics);
    let shared = Arc::clone(&quotas);
    let environment = Environment::new(Arc::clone(&clock), limits, tasks.clone(), counts, shared);
    let collectors = collectors(&settings.telemetry, &environment, &metrics)?;
    let telemetry = Telemetry::start(&settings.telemetry, collectors, &metrics, &clock);
    let telemetry = Arc::new(telemetry.map_err(StartError::Threads)?);
    let history = HistoryObserver {
        history: Arc::default(),
        metrics: Arc::clone(&metrics),
        clock: Arc::clone(&clock),
    };
    let selection_history = Arc::clone(&history.history);
    let observers = observers(settings, &telemetry, history)?;
    let sealer = Arc::new(sealer(settings, &environment)?);
    let lifetime = settings.session_lifetime;
    let sessions = Sessions::new(Arc::clone(&sealer), lifetime, &limits, Arc::clone(&clock));
    let (bound, listeners) = match owner {
        ConnectionOwner::Gateway => bind_listeners(settings, &*clock)?,
        ConnectionOwner::Application => (unbound_listeners(settings)?, Vec::new()),
    };
    let key = crate::base::random::bytes().map_err(|_opaque| StartError::SessionKey(SealError))?;
    let approvals = approval_store(settings, &*clock)?;
    // The journal comes last: it writes the first record, and a start that fails before it leaves none.
    let journal = journal(settings, &environment, &metrics, observers)?;
    let (recorded, counted) = (Arc::clone(&journal), Arc::clone(&metrics));
    let process = sha256(&key);
    let approvals = Approvals::new(approvals, recorded, counted, Arc::clone(&clock), process);
    let locks = LockStore::new(limits.sessions, Arc::clone(&metrics));
    let lasting = ProcessState {
        tasks,
        metrics,
        journal,
        telemetry,
        secrets: Arc::clone(&environment.secrets),
        sealer,
        sessions: Arc::new(sessions),
        session_states: Arc::new(SessionStates::new(limits, &quotas.ceiling, Arc::clone(&clock))),
        parked_calls: Arc::new(BoundedMap::new(limits.pending_elicitations)),
        cancellations: Arc::new(BoundedMap::new(limits.sessions)),
        result_store: Arc::new(ResultStore::new(
            limits.result_store,
            limits.result_store_per_caller,
            limits.result_store_ttl,
        )),
        flow_store: Arc::new(FlowStore::new(flow_bounds(&limits, lifetime))),
        loaded_tools: Arc::new(LoadedTools::new(load_bounds(&limits))),
        channel_store: Arc::new(ChannelStore::new(limits.flows, limits.flow_window)),
        approvals: Arc::new(approvals),
        approval_file: settings.approval_file.clone(),
        locks: Arc::new(locks),
        quotas,
        compiled,
        rate_limiter: Arc::new(RateLimiter::new(limits.sessions)),
        call_budgets: Arc::new(CallBudgets::new(limits.budget_counters)),
        repeated_calls: Arc::new(RepeatedCalls::new(limits.repeated_call_entries)),
        selection_history,
        task_questions: Arc::default(),
        revocations_changed: watch::Sender::new(()),
        key,
        gateway_id: environment.gateway_id.clone(),
        bound,
        clock,
        limits,
    };
    Ok((lasting, listeners))
}

/// Those who are told of every exchange that has ended.
fn observers(
    settings: &Settings,
    telemetry: &Arc<Telemetry>,
    history: HistoryObserver,
) -> Result<Vec<Arc<dyn Observer>>, StartError> {
    let mut observers: Vec<Arc<dyn Observer>> =
        vec![Arc::<Telemetry>::clone(telemetry), Arc::new(history)];
    if shows_requests(settings) {
        let lines = TerminalLines::start(colours(&io::stderr()));
        observers.push(Arc::new(lines.map_err(StartError::Threads)?));
    }
    Ok(observers)
}

/// Binds the sockets of the listeners, and loads their certificates.
fn bind_listeners(
    settings: &Settings,
    clock: &dyn Clock,
) -> Result<(Vec<BoundListener>, Vec<TcpListener>), StartError> {
    let (mut bound, mut listeners) = (Vec::new(), Vec::new());
    for listener in &settings.listeners {
        let key = format!("`address` of the listener `{}`", listener.name.escape_debug());
        let socket = bind(listener.address, &key)?;
        let failed = |cause| StartError::Tls { name: listener.name.clone(), cause };
        let tls = listener.tls.as_ref().map(|tls| Acceptor::new(tls, clock.now()));
        let acceptor = tls.transpose().map_err(failed)?.map(Arc::new);
        bound.push(BoundListener { address: local(&socket), acceptor });
        listeners.push(socket);
    }
    Ok((bound, listeners))
}

/// The listeners as they are configured, for an application that binds the sockets.
fn unbound_listeners(settings: &Settings) -> Result<Vec<BoundListener>, StartError> {
    let unbound = |listener: &ListenerSettings| match listener.tls {
        None => Ok(BoundListener { address: listener.address, acceptor: None }),
        Some(_) => Err(StartError::MountedTls(listener.name.clone())),
    };
    settings.listeners.iter().map(unbound).collect()
}

impl ProcessState {
    pub(crate) fn environment(&self, tasks: &Tasks) -> Environment {
        let (clock, metrics) = (Arc::clone(&self.clock), Arc::clone(&self.metrics));
        let quotas = Arc::clone(&self.quotas);
        let environment = Environment::new(clock, self.limits, tasks.clone(), metrics, quotas);
        environment.with_secrets(&self.secrets).with_gateway_id(self.gateway_id.clone())
    }

    /// Builds everything that a configuration needs, beside the generation in force, which is not changed.
    ///
    /// # Errors
    /// If any resource cannot be acquired; nothing is left running.
    pub fn build(
        &self,
        mut settings: Settings,
        former: Option<(&Gateway, &PinMonitor)>,
    ) -> Result<BuiltGeneration, StartError> {
        let tasks = self.tasks.generation();
        // Stops the services of this generation on drop, also if the build fails.
        let background_guard = tasks.guard();
        let (names, remarks) = (ConfiguredNames::of(&settings), ConfigRemark::all(&settings));
        let sandboxes = Sandboxes::of(&settings);
        let environment = self.environment(&tasks);
        let policy =
            self.policy(&mut settings, &environment, former.map(|(gateway, _)| gateway))?;
        let pin_monitor = self.pin_monitor(&settings, &policy, former.map(|(_, former)| former))?;
        self.sandboxes(&settings)?;
        let upstreams = upstreams(&settings, &environment, &self.metrics, &pin_monitor)?;
        if let Some((gateway, _)) = former {
            succeed(&upstreams, gateway);
        }
        let sealer = Arc::clone(&self.sealer);
        let known = former.map(|(gateway, _)| &*gateway.identity);
        let identity =
            Authenticator::new(&settings.identity, &environment, &self.limits, sealer, known)?;
        let admissions = self.admissions(&settings);
        let http_sse =
            settings.routes.iter().filter(|route| route.http_sse).map(|route| route.path.clone());
        let digest = format!("sha256:{}", settings.digest);
        let webhook = settings.approval_webhook.as_ref();
        let webhook = webhook.map(|webhook| Webhook::new(webhook, &environment));
        let gateway = Gateway {
            identity: Arc::new(identity),
            sessions: Arc::clone(&self.sessions),
            routes: routes(&settings, &upstreams, &environment)?,
            policy,
            checked_clients: CheckedClients::default(),
            config_digest: digest.as_str().into(),
            journal: Arc::clone(&self.journal),
            capture: settings.audit.capture,
            limits: self.limits,
            quotas: Arc::clone(&self.quotas),
            content_digest: content_digest(&settings.sections),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            telemetry: Arc::clone(&self.telemetry),
            tasks,
            cancellations: Arc::clone(&self.cancellations),
            session_states: Arc::clone(&self.session_states),
            parked_calls: Arc::clone(&self.parked_calls),
            result_store: Arc::clone(&self.result_store),
            flow_store: Arc::clone(&self.flow_store),
            loaded_tools: Arc::clone(&self.loaded_tools),
            channel_store: Arc::clone(&self.channel_store),
            approvals: Arc::clone(&self.approvals),
            approval_settings: settings.approvals,
            approval_webhook: webhook.transpose()?.map(Arc::new),
            locks: Arc::clone(&self.locks),
            decoy_locks: DecoyLocks::of(&settings.decoys),
            sealer: Arc::clone(&self.sealer),
            gateway_id: self.gateway_id.clone(),
            rate_limiter: Arc::clone(&self.rate_limiter),
            call_budgets: Arc::clone(&self.call_budgets),
            budgets: std::mem::take(&mut settings.budgets),
            repeated_calls: Arc::clone(&self.repeated_calls),
            task_questions: Arc::clone(&self.task_questions),
            repeat_limit: settings.repeated_calls,
            known_callers: KnownCallers::of(&settings.identity),
            selection_services: SelectionServices::new(&settings.selection, &environment)?,
            selection: settings.selection,
            selection_history: Arc::clone(&self.selection_history),
            revocations_changed: self.revocations_changed.clone(),
            background_guard,
        };
        let is_program =
            |server: &&ServerSettings| matches!(server.reach, ServerTransport::Stdio(_));
        let programs = settings.servers.iter().filter(is_program).cloned().collect();
        let selftest = settings.selftest.map(Arc::new);
        let generation = Generation {
            gateway: Arc::new(gateway),
            admissions,
            http_sse_paths: http_sse.collect(),
            selftest,
            names,
            sandboxes,
        };
        let names = settings.names;
        let gateway = Arc::clone(&generation.gateway);
        let work = GenerationWork { gateway, pin_monitor, upstreams, programs, names, remarks };
        Ok(BuiltGeneration { generation, digest, work })
    }

    /// Takes the policy out of the settings, and gives it what outlives a reload.
    ///
    /// # Errors
    /// If a honeytoken cannot be read, or cannot be searched for.
    fn policy(
        &self,
        settings: &mut Settings,
        environment: &Environment,
        former: Option<&Gateway>,
    ) -> Result<Arc<Policy>, StartError> {
        let policy = std::mem::take(&mut settings.policy).with_key(self.key);
        let honeytokens = honeytokens(&settings.decoys, environment)?;
        let policy = policy.with_honeytokens(&honeytokens);
        let policy =
            policy.map_err(|_too_many| StartError::Honeytoken("decoys.honeytokens".into()))?;
        let policy = policy.with_compiled(Arc::clone(&self.compiled));
        // Resource links that callers were given stay readable after a reload.
        let links = former.map(|gateway| Arc::clone(gateway.policy.links()));
        Ok(Arc::new(policy.with_links(links.unwrap_or_default())))
    }

    /// Builds the monitor that holds servers to their approved definitions. It goes on where a former one has come to.
    fn pin_monitor(
        &self,
        settings: &Settings,
        policy: &Arc<Policy>,
        former: Option<&PinMonitor>,
    ) -> Result<Arc<PinMonitor>, StartError> {
        let (journal, metrics) = (Arc::clone(&self.journal), Arc::clone(&self.metrics));
        let own =
            settings.selftest.as_ref().map(|_| selftest_fixtures::approved()).unwrap_or_default();
        let own = own.into_iter().map(|(server, offer, version)| (server, Some(offer), version));
        let (pins, own) = (settings.pins.clone(), own.collect());
        let pin_monitor = PinMonitor::new(Arc::clone(policy), pins, journal, metrics, own)?;
        if let Some(former) = former {
            pin_monitor.succeed(former);
        }
        Ok(Arc::new(pin_monitor))
    }

    /// The admission of each listener.
    fn admissions(&self, settings: &Settings) -> Vec<Arc<Admission>> {
        let listeners = settings.listeners.iter().zip(&self.bound);
        listeners.map(|(listener, bound)| Arc::new(admission(settings, listener, bound))).collect()
    }

    /// Checks that this kernel supports the sandboxes of programs. A missing required sandbox is an error; a missing
    /// optional one is logged and recorded.
    fn sandboxes(&self, settings: &Settings) -> Result<(), StartError> {
        for server in &settings.servers {
            let ServerTransport::Stdio(Program { sandbox, .. }) = &server.reach else { continue };
            let name: Box<str> = server.name.as_str().into();
            if !sandbox::can_start_programs() {
                return Err(StartError::NoPrograms(name));
            }
            let Some(plan) = sandbox else {
                tracing::warn!(
                    event = "sandbox.missing", server = %name,
                    "no sandbox: the program has the same access as the gateway"
                );
                continue;
            };
            let Err(cause) = plan.check() else { continue };
            if plan.required {
                return Err(StartError::Sandbox { name, cause });
            }
            let error = crate::base::error_chain::ErrorChain(&cause).to_string();
            tracing::warn!(
                event = "sandbox.incomplete", server = %name, %error,
                "the sandbox is incomplete"
            );
            let what = format!("server {name}: {error}");
            self.journal.record_event("sandbox", &what).map_err(StartError::Audit)?;
        }
        let plans = settings.servers.iter().filter_map(|server| match &server.reach {
            ServerTransport::Stdio(Program { sandbox: Some(plan), .. }) => {
                Some((server.name.as_str(), plan))
            }
            ServerTransport::Stdio(_) | ServerTransport::Http(_) | ServerTransport::HttpSse(_) => {
                None
            }
        });
        for said in sandbox::shown_together(plans) {
            tracing::info!(event = "sandbox.sealed_folders", note = %said, "sandbox");
        }
        Ok(())
    }

    /// Starts the background tasks of a configuration, and logs its remarks.
    pub fn begin(&self, built: &GenerationWork) {
        let tasks = &built.gateway.tasks;
        tasks.spawn_service(Arc::clone(&built.pin_monitor).tend(tasks.clone()));
        tasks.spawn_service(tend(Arc::clone(&built.gateway.identity), tasks.clone()));
        built.upstreams.iter().for_each(Upstream::tend);
        let asked = || built.upstreams.iter().filter(|one| !one.per_caller_credentials());
        if let Some(every) = built.pin_monitor.recheck() {
            for upstream in asked() {
                tasks.spawn_service(recheck(Arc::clone(upstream), tasks.clone(), every));
            }
        }
        for upstream in asked() {
            tasks.spawn(greet(Arc::clone(upstream), tasks.clone()));
        }
        let programs = built.programs.clone();
        tasks.spawn(async move {
            // It reads files, and a file system may not answer.
            drop(tokio::task::spawn_blocking(move || programs.iter().for_each(look_for)).await);
        });
        for remark in &built.remarks {
            match remark {
                ConfigRemark::Note(note) => {
                    tracing::info!(event = "config.note", %note, "configuration");
                }
                ConfigRemark::Warning(note) => {
                    tracing::warn!(event = "config.warning", %note, "configuration");
                }
            }
        }
        self.metrics.configured(built.names.clone());
        built.gateway.keep_list_tokens();
        built.pin_monitor.label();
        self.metrics.reloaded(self.clock.now());
    }
}

impl BuiltGeneration {
    /// The monitor that holds upstream servers to their approved definitions.
    #[must_use]
    pub fn pin_monitor(&self) -> Arc<PinMonitor> {
        Arc::clone(&self.work.pin_monitor)
    }
}

/// The honeytokens with their values.
///
/// # Errors
/// If one cannot be read, or is too short or too long to be searched for.
fn honeytokens(
    decoys: &settings::DecoySettings,
    environment: &Environment,
) -> Result<Vec<Honeytoken>, StartError> {
    let read = |one: &settings::HoneytokenSettings| {
        let value: Box<str> = match &one.value {
            VariableValue::Literal(text) => text.as_str().into(),
            VariableValue::Secret(reference) => environment.secret(reference)?.expose().into(),
        };
        if !settings::HONEYTOKEN.contains(&value.len()) {
            return Err(StartError::Honeytoken(one.name.clone()));
        }
        Ok(Honeytoken { name: one.name.clone(), value })
    };
    decoys.honeytokens.iter().map(read).collect()
}

/// Logs that a program is missing or cannot be started, before the first caller finds out.
fn look_for(server: &ServerSettings) {
    if let Some(Err(error)) = server_identity::started(server) {
        tracing::error!(
            event = "program.cannot_start", server = %server.name, %error,
            "upstream program cannot be started"
        );
    }
}

/// Reads the list of tools of an upstream server in advance, for the first caller. A server that does not answer is
/// asked again on demand.
async fn greet(upstream: Arc<Upstream>, tasks: Tasks) {
    if upstream.is_revoked() {
        return;
    }
    tokio::select! {
        read = upstream.own_catalog(ItemKind::Tool, None) => if let Ok(listing) = read {
            let count = listing.catalog().offers().len();
            tracing::info!(
                event = "server.tools_listed", server = %upstream.name(), tools = count,
                "tools listed"
            );
        },
        () = tasks.stopping() => {}
    }
}

/// Builds the admission of a listener: its OAuth resources and its TLS.
fn admission(settings: &Settings, listener: &ListenerSettings, bound: &BoundListener) -> Admission {
    let mut resources = HashMap::new();
    if listener.schemes.contains(&AuthScheme::Oauth) {
        for route in &settings.routes {
            resources
                .insert(route.path.clone(), resource(settings, listener, bound.address, route));
        }
    }
    Admission::new(listener, resources, bound.acceptor.clone())
}

/// The OAuth protected resource of a route behind a listener that is bound at `bound`.
pub(crate) fn resource(
    settings: &Settings,
    listener: &ListenerSettings,
    bound: SocketAddr,
    route: &settings::RouteSettings,
) -> ProtectedResource {
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    let local = || format!("{scheme}://{bound}").into();
    let public: Box<str> = listener.public.clone().unwrap_or_else(local);
    let sees_certificates = listener.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
        || listener.forwarded.is_some();
    let binding = if sees_certificates {
        CertificateBinding::Verifiable
    } else {
        CertificateBinding::Unverifiable
    };
    ProtectedResource::new(&public, &route.path, &route.oauth, &settings.identity.issuers, binding)
}

/// Keeps the keys of issuers fresh until the gateway stops.
async fn tend(identity: Arc<Authenticator>, tasks: Tasks) {
    tokio::select! {
        () = identity.tend() => {}
        () = tasks.halting() => {}
    }
}

/// Reads all lists of an upstream server at an interval, regardless of their announced lifetime, so that a changed
/// definition is found without a call.
async fn recheck(upstream: Arc<Upstream>, tasks: Tasks, every: Duration) {
    let mut turn = tokio::time::interval(every);
    loop {
        tokio::select! {
            _ = turn.tick() => {}
            () = tasks.halting() => return,
        }
        tokio::select! {
            () = upstream.recheck() => {}
            () = tasks.halting() => return,
        }
    }
}

/// Listens on `address`; `key` names the configuration key for the error.
pub(crate) fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, StartError> {
    let failed = |cause| StartError::Bind { address, key: key.into(), cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

pub(crate) fn local(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// Whether to use colours on a stream (<https://no-color.org>).
#[must_use]
pub fn colours(stream: &impl IsTerminal) -> Colours {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stream.is_terminal() && !unwanted { Colours::Shown } else { Colours::None }
}

/// The form of records on standard output: lines for people on a terminal, unless JSON logs are configured.
fn stdout_is_read(settings: &Settings) -> Rendering {
    let stdout = io::stdout();
    match stdout.is_terminal() && settings.log.format != Some(LogFormat::Json) {
        true => Rendering::Lines(colours(&stdout)),
        false => Rendering::Whole,
    }
}

/// Whether each request is shown on standard error, unless the same line goes to standard output.
fn shows_requests(settings: &Settings) -> bool {
    let is_ours = settings.log.terminal == TerminalUse::Ours || settings.log.format.is_some();
    let mut sinks = settings.audit.sinks.iter();
    let stdout = sinks.any(|sink| matches!(sink.to, SinkTarget::Stdout));
    let twice = stdout && stdout_is_read(settings) != Rendering::Whole;
    is_ours && !twice && settings.log.is_human(&io::stderr())
}

/// Builds the audit journal with the configured sinks.
///
/// # Errors
/// If a sink cannot be opened, or does not accept the first record.
pub(crate) fn journal(
    settings: &Settings,
    environment: &Environment,
    metrics: &Arc<Metrics>,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<Arc<Journal>, StartError> {
    let checkpoints = checkpoints(&settings.audit.checkpoints, environment)?;
    let trusted = trusted(&settings.audit.checkpoints, &checkpoints)?;
    let OpenedSinks { mut sinks, deliveries, logs } = open_sinks(settings, environment, &trusted)?;
    let ExistingLogs { resumed, ends, is_file } = logs;
    let next = resumed.as_ref().map_or(0, |resumed| resumed.chain.tree.size());
    for (slot, end) in sinks.iter_mut().zip(ends) {
        // A file that ends before the longest one is missing the records in between.
        slot.missing = end.filter(|end| *end < next).map(|end| (end, next - 1));
    }
    let audit = &settings.audit;
    let kept = if is_file { kept(audit, &trusted)? } else { None };
    let left = compared(audit, kept.as_ref(), resumed.as_ref())?;
    deliver(deliveries).map_err(StartError::Threads)?;
    let key = audit.digest_key.as_ref().map(|key| environment.secret(key)).transpose()?;
    let file = audit.checkpoints.file.as_deref().map(CheckpointFile::open).transpose();
    let checkpoint_file =
        file.map_err(|cause| StartError::Sink { name: "audit.checkpoints.file".into(), cause })?;
    let parts = JournalParts {
        sinks,
        resumed,
        checkpoints,
        checkpoint_file,
        volume: crate::audit::volume,
        config_digest: format!("sha256:{}", settings.digest),
        digest_key: key.map(|key| key.expose().as_bytes().to_vec()),
        refusals: audit.refusals,
        observers,
    };
    let journal = Journal::new(parts, Arc::clone(&environment.clock), Arc::clone(metrics));
    let journal = Arc::new(journal.map_err(StartError::Audit)?);
    if let Some(what) = left {
        tracing::warn!(
            event = "audit.log_replaced", %what,
            "a new audit log was started on request"
        );
        let recorded = journal.record_event("began", &what).inspect_err(|_| journal.abandon());
        recorded.map_err(StartError::Audit)?;
    }
    Ok(journal)
}

/// The sinks of an audit journal, opened.
#[derive(Default)]
struct OpenedSinks {
    /// The logs that the sinks continue.
    logs: ExistingLogs,
    /// Deliveries to receivers over the network, which are not started yet.
    deliveries: Vec<Delivery>,
    /// One for each sink of the configuration, in its order.
    sinks: Vec<SinkSlot>,
}

/// Opens the configured sinks.
///
/// # Errors
/// If a sink cannot be opened, or its log cannot be continued.
fn open_sinks(
    settings: &Settings,
    environment: &Environment,
    trusted: &ResumePolicy,
) -> Result<OpenedSinks, StartError> {
    let mut opened = OpenedSinks::default();
    for sink in &settings.audit.sinks {
        let failed = |cause| StartError::Sink { name: sink.name.clone(), cause };
        let (spool, outlet) = Spool::new(&sink.name, sink.spool);
        let slot: Box<dyn AuditSink> = match &sink.to {
            SinkTarget::File(path, rotation) => {
                let now = environment.clock.now();
                let file = FileSink::open(&sink.name, path, *rotation, trusted, now);
                let (file, end) = file.map_err(failed)?;
                opened.logs.is_file |= file.can_be_continued();
                opened.logs.add(end).map_err(failed)?;
                Box::new(file)
            }
            SinkTarget::Stdout => {
                let written = stdout_is_read(settings);
                write_to_stdout(outlet, written).map_err(failed)?;
                opened.logs.ends.push(None);
                Box::new(spool)
            }
            SinkTarget::Http(..) | SinkTarget::Otlp(..) | SinkTarget::Syslog(..) => {
                let (name, format, to) =
                    (sink.name.clone(), sink.format, receiver(sink, environment)?);
                opened.deliveries.push(Delivery { name, outlet, format, to });
                opened.logs.ends.push(None);
                Box::new(spool)
            }
        };
        opened.sinks.push(SinkSlot { sink: slot, full: sink.full, missing: None, begun: false });
    }
    Ok(opened)
}

/// The existing logs that a gateway continues.
#[derive(Debug, Default)]
struct ExistingLogs {
    /// The end of the longest log.
    resumed: Option<ResumedChain>,
    /// Number of records in each sink, in order; `None` for a sink without an existing log.
    ends: Vec<Option<u64>>,
    /// Whether at least one sink is a regular file, whose content is known.
    is_file: bool,
}

impl ExistingLogs {
    /// Adds the end of a file.
    ///
    /// # Errors
    /// If it belongs to another chain than an earlier file.
    fn add(&mut self, end: Option<ResumedChain>) -> io::Result<()> {
        self.ends.push(end.as_ref().map(|end| end.chain.tree.size()));
        let known = self.resumed.as_ref();
        let is_other =
            |(one, other): (&ResumedChain, &ResumedChain)| one.chain.id != other.chain.id;
        if known.zip(end.as_ref()).is_some_and(is_other) {
            let other = "it has the records of another chain; move the file away";
            return Err(io::Error::other(other));
        }
        let longest = known.map(|known| known.chain.tree.size());
        let is_longer =
            |end: &ResumedChain| longest.is_none_or(|longest| end.chain.tree.size() > longest);
        if end.as_ref().is_some_and(is_longer) {
            self.resumed = end;
        }
        Ok(())
    }
}

/// The state of the logs that a start would continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogContinuation {
    /// Number of records in the log; `None` if a new one would be started.
    pub records: Option<u64>,
    /// Number of records that the last separate checkpoint covers, if there is one.
    pub kept: Option<u64>,
}

/// Checks the logs against their key and the last separate checkpoint, as a start does. Everything is only read, and
/// a gateway may be writing.
///
/// # Errors
/// Those of a start with these logs.
pub fn examine_logs(
    audit: &settings::AuditSettings,
    environment: &Environment,
) -> Result<LogContinuation, StartError> {
    let checkpoints = checkpoints(&audit.checkpoints, environment)?;
    let trusted = trusted(&audit.checkpoints, &checkpoints)?;
    let files = audit.sinks.iter().filter_map(|sink| match &sink.to {
        SinkTarget::File(path, _) => can_be_continued(path).then_some((&sink.name, path)),
        SinkTarget::Stdout
        | SinkTarget::Http(..)
        | SinkTarget::Otlp(..)
        | SinkTarget::Syslog(..) => None,
    });
    let files: Vec<_> = files.collect();
    // The checkpoint is read before the logs: a running gateway writes it after the records that it covers.
    let kept = if files.is_empty() { None } else { kept(audit, &trusted)? };
    let mut logs = ExistingLogs::default();
    for (name, path) in files {
        let end = examine(path, &trusted).and_then(|end| logs.add(end));
        end.map_err(|cause| StartError::Sink { name: name.clone(), cause })?;
    }
    compared(audit, kept.as_ref(), logs.resumed.as_ref())?;
    let records = logs.resumed.map(|resumed| resumed.chain.tree.size());
    Ok(LogContinuation { records, kept: kept.map(|kept| kept.size) })
}

/// Reads the last checkpoint that was kept apart from the log.
fn kept(
    audit: &settings::AuditSettings,
    trusted: &ResumePolicy,
) -> Result<Option<Checkpoint>, StartError> {
    let failed = |cause| StartError::Sink { name: "audit.checkpoints.file".into(), cause };
    let kept = audit.checkpoints.file.as_deref().map(|path| last_kept(path, trusted));
    Ok(kept.transpose().map_err(failed)?.flatten())
}

/// Compares the log with its last separate checkpoint. If there is no log and a new one was requested, returns the
/// text that records the replacement.
///
/// # Errors
/// If the log does not match the checkpoint, or a new log was requested without need.
fn compared(
    audit: &settings::AuditSettings,
    kept: Option<&Checkpoint>,
    resumed: Option<&ResumedChain>,
) -> Result<Option<String>, StartError> {
    let path = audit.checkpoints.file.as_deref();
    let wrong = path.zip(kept.and_then(|kept| disagreement(kept, resumed)));
    match wrong {
        None if audit.anew => Err(StartError::NewLog),
        None => Ok(None),
        Some(_) if audit.anew && resumed.is_none() => Ok(kept.map(left_behind)),
        Some((path, what)) => {
            Err(StartError::Log { file: path.display().to_string().into(), what: what.into() })
        }
    }
}

/// The collectors of traces and metrics, whose messages are counted in `metrics`.
fn collectors(
    telemetry: &settings::TelemetrySettings,
    environment: &Environment,
    metrics: &Arc<Metrics>,
) -> Result<Collectors, EnvironmentError> {
    let client = |signal: OtlpSignal, otlp: &Option<settings::OtlpSettings>| {
        let client =
            otlp.as_ref().map(|otlp| otlp_client(signal, otlp, environment)).transpose()?;
        Ok::<_, EnvironmentError>(client.map(|client| client.counted(metrics)))
    };
    Ok(Collectors {
        traces: client(OtlpSignal::Traces, &telemetry.traces)?,
        metrics: client(OtlpSignal::Metrics, &telemetry.metrics)?,
    })
}

/// The client of a collector for one kind of telemetry.
fn otlp_client(
    signal: OtlpSignal,
    otlp: &settings::OtlpSettings,
    environment: &Environment,
) -> Result<OtlpClient, EnvironmentError> {
    let mut ways = environment.ways(&otlp.place.way, None)?;
    ways.time = otlp.time.unwrap_or(ways.time);
    if otlp.protocol == OtlpProtocol::Grpc {
        let mut tls = ClientConfig::clone(&ways.tls);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        ways.tls = Arc::new(tls);
    }
    let credential = match &otlp.secret {
        OtlpSecret::None => OtlpCredential::None,
        OtlpSecret::Token(token) => OtlpCredential::Token(environment.bearer(token)?),
        OtlpSecret::Headers(variable) => {
            let text = environment.secret(variable)?;
            let headers = settings::read_headers(text.expose());
            let unusable = |_| EnvironmentError::Header(secrets::place(variable));
            OtlpCredential::Headers(headers.map_err(unusable)?)
        }
    };
    Ok(OtlpClient::new(signal, ways.to(&otlp.place.url)?, otlp.protocol, credential))
}

fn receiver(
    sink: &settings::SinkSettings,
    environment: &Environment,
) -> Result<DeliveryTarget, StartError> {
    Ok(match &sink.to {
        SinkTarget::Http(place, token) => {
            let endpoint = environment.ways(&place.way, None)?.to(&place.url);
            let token = token.as_ref().map(|token| environment.bearer(token)).transpose()?;
            DeliveryTarget::Http(Box::new(endpoint.map_err(EnvironmentError::Url)?), token)
        }
        SinkTarget::Otlp(place, token) => {
            let (signal, protocol) = (OtlpSignal::Logs, OtlpProtocol::Http);
            let url = signal.below(&place.url);
            let url = url.ok_or(EnvironmentError::Url(FetchError::Url))?;
            let place = ServiceEndpoint { url, way: place.way.clone() };
            let secret = token.clone().map_or(OtlpSecret::None, OtlpSecret::Token);
            let otlp = settings::OtlpSettings { place, protocol, secret, time: None };
            let failed = |cause| StartError::Sink { name: sink.name.clone(), cause };
            let records =
                RecordExporter::new(otlp_client(signal, &otlp, environment)?).map_err(failed)?;
            DeliveryTarget::Otlp(Box::new(records))
        }
        SinkTarget::Syslog(SyslogAddress::Udp(address), facility) => {
            DeliveryTarget::Udp(*address, *facility)
        }
        SinkTarget::Syslog(SyslogAddress::Tcp(address), facility) => {
            DeliveryTarget::Tcp(*address, *facility)
        }
        SinkTarget::Syslog(SyslogAddress::Unix(path), facility) => {
            DeliveryTarget::Unix(path.clone(), *facility)
        }
        SinkTarget::File(..) | SinkTarget::Stdout => {
            let cause = io::Error::other("nothing is sent to it");
            return Err(StartError::Sink { name: sink.name.clone(), cause });
        }
    })
}

/// SHA-256 digest of the sections that say what of a result may be shown: those that a kept result was inspected under.
fn content_digest(sections: &BTreeMap<Box<str>, [u8; 32]>) -> [u8; 32] {
    let digests = ["policy", "registry", "decoys"].map(|name| sections.get(name).copied());
    sha256(digests.map(Option::unwrap_or_default).as_flattened())
}

fn checkpoints(
    settings: &settings::CheckpointSettings,
    environment: &Environment,
) -> Result<CheckpointPolicy, StartError> {
    let broken = |error: NoteError| AuditError::Checkpoint(error.to_string().into());
    let signer = match &settings.key {
        Some(reference) => {
            let secret = environment.secret(reference)?;
            let key = PrivatePkcs8KeyDer::from_pem_slice(secret.expose().as_bytes());
            let key = key.map_err(|_none| StartError::Audit(broken(NoteError::Key)))?;
            NoteSigner::read(key.secret_pkcs8_der(), &settings.origin)
        }
        None => NoteSigner::generate(&settings.origin),
    };
    let signer = signer.map_err(|error| StartError::Audit(broken(error)))?;
    let (records, interval) = (settings.records, settings.interval);
    Ok(CheckpointPolicy { signer, records, interval })
}

/// The keys that may have signed an existing log: the current key and the former ones.
fn trusted(
    settings: &settings::CheckpointSettings,
    checkpoints: &CheckpointPolicy,
) -> Result<ResumePolicy, StartError> {
    let mut keys = Vec::new();
    if settings.key.is_some() {
        keys.push(checkpoints.signer.public().clone());
        for former in &settings.former {
            let broken = |error: NoteError| AuditError::Checkpoint(error.to_string().into());
            keys.push(NoteVerifier::parse(former).map_err(|e| StartError::Audit(broken(e)))?);
        }
    }
    Ok(ResumePolicy { keys, uncovered: settings.records.saturating_mul(2).saturating_add(64) })
}

fn sealer(settings: &Settings, environment: &Environment) -> Result<Sealer, StartError> {
    let mut keys = Vec::new();
    for reference in &settings.session_keys {
        let key = json::hex::decode(environment.secret(reference)?.expose());
        keys.push(key.ok_or(StartError::SessionKey(SealError))?);
    }
    Sealer::new(&keys).map_err(StartError::SessionKey)
}

pub(crate) fn upstreams(
    settings: &Settings,
    environment: &Environment,
    metrics: &Arc<Metrics>,
    pin_monitor: &Arc<PinMonitor>,
) -> Result<Vec<Arc<Upstream>>, StartError> {
    let mut upstreams = Vec::new();
    for server in &settings.servers {
        let mut variables = Vec::new();
        if let ServerTransport::Stdio(program) = &server.reach {
            for (name, value) in &program.env {
                let value = match value {
                    VariableValue::Literal(text) => {
                        let text = Secret::new(text.as_str().into());
                        Arc::new(LiveSecret::fixed(text, Arc::clone(&environment.clock)))
                    }
                    VariableValue::Secret(reference) => environment.live(reference)?,
                };
                variables.push((name.clone(), value));
            }
        }
        let pin_monitor = Arc::clone(pin_monitor);
        let upstream =
            Upstream::new(server, variables, settings.limits, environment, metrics, pin_monitor);
        let name = server.name.as_str().into();
        let upstream = upstream.map_err(|cause| StartError::Server { name, cause })?;
        upstreams.push(Arc::new(upstream));
    }
    Ok(upstreams)
}

/// Takes over what is known of upstream servers whose identity has not changed.
fn succeed(upstreams: &[Arc<Upstream>], former: &Gateway) {
    for known in former.routes.values().flat_map(|route| &route.servers) {
        let same = upstreams.iter().filter(|upstream| upstream.identity() == known.identity());
        same.for_each(|upstream| upstream.succeed(known));
    }
}

fn routes(
    settings: &Settings,
    upstreams: &[Arc<Upstream>],
    environment: &Environment,
) -> Result<HashMap<Box<str>, Arc<Route>>, EnvironmentError> {
    let route = |route: &settings::RouteSettings| {
        let servers = route.servers.iter().filter_map(|index| upstreams.get(*index).cloned());
        let path: Arc<str> = Arc::from(&*route.path);
        let (servers, prefix) = (servers.collect(), route.prefix);
        let guardrails = route.guardrails.iter().map(|one| GuardrailClient::new(one, environment));
        let guardrails = guardrails.collect::<Result<_, _>>()?;
        let made = Route::new(path, servers, prefix, guardrails).for_planner(route.planner);
        let made = made.with_discovery(route.discovery.clone());
        Ok((route.path.clone(), Arc::new(made)))
    };
    settings.routes.iter().map(route).collect()
}
