//! The MCP servers behind the gateway: connections, sessions, catalogs and calls. The exchange calls this module. A
//! call takes a [`Cleared`] permit and an [`Intent`]: the policy permits it, and the audit log has its intent.
//!
//! Every public function that sends something to a server says which proof it takes, or why none. Where a caller is the
//! reason, it is a [`ReadEntry`] or an [`Intent`] and what the policy minted: a [`ServerPermit`] for what is about the
//! server or a session, the [`Permit`] of a list for its definitions, a [`Cleared`] permit for a use, a
//! [`NotificationFilter`] for what is listened for, a [`ServerReply`] for an answer. A permit is for one server, and no
//! other takes it. Where no caller is the reason, the function sends on behalf of the gateway alone.
//!
//! A request is written for the protocol era that the server speaks. The era is detected once, and anew when the server
//! no longer speaks it. JSON-RPC ids, progress tokens and sessions towards upstream servers are the gateway's own.

mod on_behalf_of;
pub mod server_identity;
mod health;
mod breaker;
mod list_pause;
mod credential;
mod error;
mod single_flight;
mod cleared;
mod reply;
mod retry;
mod request;
mod message;
mod streamable_http;
mod server_log;
mod sandbox_denials;
mod send_queue;
mod fan_out;
mod demux;
mod channel;
pub mod line_framing;
mod stdio;
mod http_sse;
mod channel_pool;
mod answer;
mod handshake;
mod listing;
mod subscription;
mod stream;
mod gateway_session;
mod catalog;
mod capability_lists;
mod list_changes;
mod notifications;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use ::http::header::VIA;
use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use arc_swap::ArcSwapOption;
use detection::inspect::Finding;
use json::{Fragment, Value};
use policy::definition::offer::CatalogItem;
use policy::definition::pin::Digest;
use policy::engine::ask::ServerRequestPolicy;
use policy::engine::message::{ClientRequest, ItemRequest, RequestOperation};
use policy::engine::pipeline::{Expectation, Permit, ServerPermit};
use policy_core::subject::kind::ItemKind;
use policy_core::subject::name::ServerName;
use policy_core::subject::pattern::Pattern;
use tokio::time::{Instant, timeout_at};

use crate::audit::{Intent, ReadEntry};
use crate::base::bounded::BoundedMap;
use crate::base::gcra::Gcra;
use crate::base::intake::ResponseAccounts;
use crate::base::log_limit::LogLimit;
use crate::base::share::{Holder, Share, ShareError, Shares};
use crate::base::task::Tasks;
use crate::config::overrides::Overrides;
use crate::config::settings::{
    Limits, Program, ServerProtocol, ServerSettings, ServerTransport, VariableValue,
};
use crate::mcp::client_info::{AppUse, Client};
use crate::mcp::protocol::{Era, ProtocolVersion, method};
use crate::mcp::wire::{Id, Message, ResponseOutcome};
use crate::metrics::{Metrics, ServerMetrics};
use crate::net::connection::{ConnectTarget, ConnectionError};
use crate::outbound::environment::{Environment, EnvironmentError};
use crate::outbound::secrets::LiveSecret;
use crate::pins::{FindingEffect, PinMonitor};
use crate::process::sandbox::SandboxPlan;
use crate::session::UpstreamSession;
use crate::session::disclosed_client::DisclosedClient;

pub use answer::{AnswerStep, CallAnswer, InputRequest, InputRequired, ReplySender, is_progress};
use answer::{Incoming, IncomingMessages};
use breaker::{Breaker, BreakerPass};
use capability_lists::CapableCatalogs;
pub use capability_lists::CapableOffer;
use catalog::CatalogCache;
use channel::ChannelTerms;
use channel_pool::{ChannelOpener, ChannelPool};
pub use cleared::{Cleared, ClearedAnswer, ClearedOutcome, InputResponses, InputResponsesDraft};
pub use credential::CredentialError;
use credential::Credentials;
use demux::ConnectionScope;
pub use error::UpstreamError;
pub use gateway_session::STREAM_OPENING;
use gateway_session::{CatalogOwner, GatewaySession, GatewaySessionKey, WeakDemux};
pub use handshake::ServerInfo;
use handshake::{CallerServerState, ServerState};
use health::ServerHealth;
use http_sse::{HttpSseClient, RequestAuth};
pub use list_changes::ListChanges;
use list_pause::ListPauses;
pub use listing::{Listing, RenderedItem, RenderedView, ShortList};
pub use notifications::{Feed, FeedOpener, ServerMessage};
use notifications::{WatchKey, WeakWatchers};
pub use on_behalf_of::{OnBehalfOf, SubjectToken};
pub use reply::ServerReply;
pub use request::{CallOptions, call_text};
use request::{Outgoing, RequestContext};
pub use retry::RetryCount;
pub use sandbox_denials::FailedRequest;
use sandbox_denials::SandboxDenials;
pub use server_log::LastOutput;
use server_log::ServerLog;
use single_flight::SingleFlight;
use stdio::ProcessStarter;
use streamable_http::{AnswerBudget, StreamableHttpClient};
pub use subscription::{
    ListenedItems, NotificationFilter, RESOURCES, SUBSCRIBABLE_LISTS, changed, flag,
    listening_bytes,
};

/// The first JSON-RPC id used towards a server. Ids have ten digits, so two responses with the same content differ only
/// in the id, at a fixed offset.
const FIRST_ID: i64 = 1_000_000_000;

/// An upstream server: its transport, and what is known and cached of it.
#[derive(Debug)]
pub struct Upstream {
    name: ServerName,
    protocol: ServerProtocol,
    transport: Transport,
    /// Limits the log lines that a program writes to its error output; `None` for a server at a URL.
    server_log: Option<Arc<ServerLog>>,
    limits: Limits,
    /// The server's name and a digest of its address, so state of one server is never used for another server of the
    /// same name.
    identity: Box<str>,
    /// Explains what the sandbox of its program denies; `None` without a sandbox.
    sandbox_denials: Option<SandboxDenials>,
    /// What the server may ask of clients: elicitation, sampling, roots.
    server_requests: ServerRequestPolicy,
    /// Tool definitions of the configuration, shown to callers in place of the server's own.
    overrides: Arc<Overrides>,
    client_meta: Option<Vec<Pattern>>,
    /// Whether the server may show apps.
    apps: AppUse,
    counts: Arc<ServerMetrics>,
    /// Limits the log lines that the gateway writes about the server.
    about: ServerLog,
    breaker: Option<Arc<Breaker>>,
    /// How its latest requests ended.
    health: Arc<ServerHealth>,
    /// Its lists that were not answered in time.
    list_pauses: ListPauses,
    /// Compares the server's definitions with the approved ones.
    pin_monitor: Arc<PinMonitor>,
    tasks: Tasks,
    next_id: AtomicI64,
    known: ArcSwapOption<ServerState>,
    probing: SingleFlight,
    /// The [`ServerState`] by caller, for a server that is reached with the credentials of callers only.
    known_by: BoundedMap<GatewaySessionKey, CallerServerState>,
    /// The server is reached with the credentials of callers only, never with the gateway's own.
    per_caller_credentials: bool,
    /// The generation of the channel for which the era was detected last.
    met: AtomicU64,
    /// Limits the log lines about calls and subscriptions that failed: callers can cause any number.
    failures: LogLimit,
    /// No `initialize` is tried: the server is configured as modern, or has refused it and speaks the modern era.
    modern_alone: AtomicBool,
    /// The server is revoked. Only the ends of sessions and of calls are sent to it.
    revoked: AtomicBool,
    /// The server was found to speak the legacy era only, which is therefore tried first, also after a failure.
    is_legacy: AtomicBool,
    /// The server sends the headers of a stream only with the first message on it.
    begins_late: AtomicBool,
    /// Catalogs that are the same for all callers (`shared`), and those of one session or caller (`catalogs`).
    shared: Arc<CatalogCache>,
    catalogs: BoundedMap<CatalogOwner, Arc<CatalogCache>>,
    /// Calls of the server that are under way, by caller; `None` if they have no bound.
    calls: Option<Arc<Shares<Holder>>>,
    /// How many entries of `catalogs` one caller may have.
    places: Arc<Shares<Arc<str>>>,
    /// Lists in `catalogs` by digest: a list that several callers are shown is kept once.
    same: BoundedMap<[u8; 32], Weak<Listing>>,
    /// Budget of bytes for the kept lists of all servers, by caller.
    lists: Arc<Shares<Arc<str>>>,
    /// Budget of bytes for the lists of this server that are kept once for all callers, by server name.
    lists_for_all: Arc<Shares<Arc<str>>>,
    /// Budget of bytes for the answers of all servers.
    answers: Arc<ResponseAccounts>,
    /// Catalogs as shown to clients that can answer elicitation, sampling or roots requests.
    capable: CapableCatalogs,
    /// Sessions that the gateway keeps for callers without a session of their own.
    gateway_sessions: BoundedMap<GatewaySessionKey, Arc<GatewaySession>>,
    /// The demultiplexers of sessions that belong to clients, while they are in use.
    demuxes: BoundedMap<(GatewaySessionKey, UpstreamSession), WeakDemux>,
    /// The feeds that have a resource watched at a legacy server.
    watched: BoundedMap<WatchKey, WeakWatchers>,
}

/// How a session with a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    /// The gateway closed it.
    Closed,
    /// The server no longer knows it.
    Lost,
}

#[derive(Debug)]
enum Transport {
    Http(Box<StreamableHttpClient>),
    Channel(ChannelPool),
}

/// What the transport to a server is built from.
struct TransportParts<'a> {
    server: &'a ServerSettings,
    environment: &'a Environment,
    limits: Limits,
    counts: &'a Arc<ServerMetrics>,
}

impl TransportParts<'_> {
    /// Builds the transport that is configured, and for a program the limit of what it writes to its error output.
    /// `env` holds the secrets among the variables of a program.
    fn build(
        &self,
        shown: RequestAuth,
        env: Vec<(String, Arc<LiveSecret>)>,
        pin_monitor: &Arc<PinMonitor>,
    ) -> Result<(Transport, Option<Arc<ServerLog>>), UpstreamError> {
        match &self.server.reach {
            ServerTransport::Http(uri) => Ok((self.streamable_http(uri, shown)?, None)),
            ServerTransport::HttpSse(uri) => Ok((self.http_sse(uri, shown)?, None)),
            ServerTransport::Stdio(program) => {
                let program = Program { env: Vec::new(), ..program.clone() };
                let server_log = ServerLog::new(Arc::clone(self.counts));
                let (terms, tasks) = (self.channel(&server_log), self.environment.tasks.clone());
                let starter = ProcessStarter::new(terms, program, env, tasks);
                let starter = starter.known_to(Arc::clone(pin_monitor));
                Ok((self.pool(ChannelOpener::Program(Box::new(starter))), Some(server_log)))
            }
        }
    }

    /// The transport to a server that speaks Streamable HTTP at `uri`.
    fn streamable_http(&self, uri: &Uri, shown: RequestAuth) -> Result<Transport, UpstreamError> {
        let (target, terms) = (self.target(uri)?, self.limits.http2_of_servers());
        let alone = self.server.tls.http1_alone;
        let tasks = self.environment.tasks.clone();
        let target = if alone { target } else { target.multiplexed(terms, tasks) };
        let answers = AnswerBudget {
            server: self.server.name.as_str().into(),
            accounts: Arc::clone(&self.environment.quotas.answers),
        };
        let (credentials, extra) = shown;
        let http =
            StreamableHttpClient::new(uri, target, credentials, extra, self.limits, answers)?;
        Ok(Transport::Http(Box::new(http)))
    }

    /// The transport to a server that speaks HTTP with SSE, the older transport, at `uri`.
    fn http_sse(&self, uri: &Uri, shown: RequestAuth) -> Result<Transport, UpstreamError> {
        let terms = self.channel(&ServerLog::new(Arc::clone(self.counts)));
        let tasks = self.environment.tasks.clone();
        let old = HttpSseClient::new(terms, uri, self.target(uri)?, shown, tasks);
        Ok(self.pool(ChannelOpener::HttpSse(Box::new(old))))
    }

    /// A pool of the channels that `opener` opens.
    fn pool(&self, opener: ChannelOpener) -> Transport {
        let (all, each) = (self.limits.processes, self.limits.processes_per_caller);
        Transport::Channel(ChannelPool::new(opener, self.server.sharing, all, each))
    }

    /// What a channel is opened with.
    fn channel(&self, server_log: &Arc<ServerLog>) -> ChannelTerms {
        ChannelTerms {
            name: self.server.name.clone(),
            limits: self.limits,
            server_log: Arc::clone(server_log),
            counts: Arc::clone(self.counts),
            response_memory: Arc::clone(&self.environment.quotas.answers),
        }
    }

    fn target(&self, uri: &Uri) -> Result<ConnectTarget, UpstreamError> {
        target_of(self.server, uri, self.limits.connect_timeout, self.environment)
    }
}

impl Upstream {
    /// Builds the upstream server that `server` configures. Nothing is sent to it yet.
    ///
    /// # Errors
    /// If its URL, its TLS settings, its credential or its headers cannot be used.
    pub fn new(
        server: &ServerSettings,
        env: Vec<(String, Arc<LiveSecret>)>,
        limits: Limits,
        environment: &Environment,
        metrics: &Metrics,
        pin_monitor: Arc<PinMonitor>,
    ) -> Result<Self, UpstreamError> {
        if let Some(identity) = server_identity::of_url(server) {
            pin_monitor.identified(&server.name, &identity);
        }
        let credentials = Credentials::new(environment, server.credential.as_ref(), &limits);
        let credentials = Arc::new(credentials.map_err(UpstreamError::Environment)?);
        let extra = ConfiguredHeaders::new(environment, &server.headers)
            .map_err(UpstreamError::Environment)?;
        let per_caller_credentials = credentials.are_of_callers();
        let counts = metrics.server(server.name.as_str());
        let breaker = |bounds| Arc::new(Breaker::new(bounds, Arc::clone(&counts), Instant::now()));
        let breaker = server.circuit_breaker.map(breaker);
        let parts = TransportParts { server, environment, limits, counts: &counts };
        let (transport, server_log) = parts.build((credentials, extra), env, &pin_monitor)?;
        let sandbox_denials = sandbox(server).zip(server_log.clone()).map(|(plan, server_log)| {
            SandboxDenials::new(server.name.clone(), plan, server_log, environment.tasks.clone())
        });
        let apps = if server.apps.is_some() { AppUse::Allowed } else { AppUse::Denied };
        let of_server = limits.response_memory_per_server;
        Ok(Self {
            name: server.name.clone(),
            protocol: server.protocol,
            transport,
            server_log,
            limits,
            identity: identity(server),
            sandbox_denials,
            server_requests: server.server_requests.clone(),
            overrides: Arc::clone(&server.overrides),
            client_meta: server.client_meta.clone(),
            apps,
            calls: server.concurrency.map(|bounds| Shares::new(bounds.all, bounds.per_caller)),
            about: ServerLog::about(Arc::clone(&counts)),
            counts,
            breaker,
            health: Arc::new(ServerHealth::new(Instant::now())),
            list_pauses: ListPauses::default(),
            pin_monitor,
            tasks: environment.tasks.clone(),
            next_id: AtomicI64::new(FIRST_ID),
            known: ArcSwapOption::empty(),
            probing: SingleFlight::default(),
            known_by: BoundedMap::new(limits.sessions),
            per_caller_credentials,
            met: AtomicU64::new(0),
            failures: LogLimit::new(1, 20),
            modern_alone: AtomicBool::new(server.protocol == ServerProtocol::Modern),
            revoked: AtomicBool::new(false),
            is_legacy: AtomicBool::new(false),
            begins_late: AtomicBool::new(false),
            shared: Arc::default(),
            catalogs: BoundedMap::new(limits.sessions),
            places: Shares::new(limits.sessions, limits.sessions_per_caller),
            same: BoundedMap::new(limits.sessions),
            lists: Arc::clone(&environment.quotas.lists),
            lists_for_all: Shares::new(of_server, of_server),
            answers: Arc::clone(&environment.quotas.answers),
            capable: CapableCatalogs::new(&server.server_requests, apps),
            gateway_sessions: BoundedMap::new(limits.sessions),
            demuxes: BoundedMap::new(limits.sessions),
            watched: BoundedMap::new(limits.sessions),
        })
    }

    /// Starts the background work: the circuit metric and the sweep of idle sessions. Needs no proof: nothing but the end
    /// of a session is sent.
    pub fn tend(self: &Arc<Self>) {
        // Replaces the state of the breaker of an earlier configuration.
        self.counts.circuit(self.breaker.as_ref().map(|breaker| breaker.until()));
        self.tasks.spawn_service(Arc::clone(self).sweep());
    }

    /// The configured name of the server.
    #[must_use]
    pub const fn name(&self) -> &ServerName {
        &self.name
    }

    /// How likely a call of a tool of the server succeeds now, between 0 and 1: 0 while its circuit is open, and less than
    /// 1 if requests to it failed or were slow a short while ago. It depends on nothing that a server says.
    #[must_use]
    pub fn available(&self) -> f32 {
        let now = Instant::now();
        match &self.breaker {
            Some(breaker) if breaker.is_open(now) => 0.0,
            Some(_) | None => self.health.available(now),
        }
    }

    /// What the server may ask of clients.
    #[must_use]
    pub const fn server_requests(&self) -> &ServerRequestPolicy {
        &self.server_requests
    }

    /// The members of `_meta` that the server gets of those that a client sent and that the protocol does not define
    /// (control C31): a server may take such a key for the word of somebody it trusts.
    #[must_use]
    pub fn sendable_meta(&self, mut meta: Vec<(Box<str>, Fragment)>) -> Vec<(Box<str>, Fragment)> {
        if let Some(listed) = &self.client_meta {
            meta.retain(|(key, _)| listed.iter().any(|pattern| pattern.matches(key)));
        }
        meta
    }

    /// A client as the server gets to know it: that it can show apps is kept back from a server that may show none.
    #[must_use]
    pub fn introduced(&self, client: DisclosedClient) -> DisclosedClient {
        client.for_server(self.apps)
    }

    /// Tool definitions of the configuration, shown to callers in place of the server's own.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Whether a line about the server's messages may be logged at `now`. Returns the number of lines suppressed
    /// since the last one, or `None` if the line must not be logged.
    #[must_use]
    pub fn may_log(&self, now: std::time::Instant) -> Option<u64> {
        self.about.allow(now.into())
    }

    /// Whether its list of this kind is read for names that another server may have as well: it was answered in time the
    /// last time, or is tried again now.
    #[must_use]
    pub fn reads_list(&self, kind: ItemKind) -> bool {
        self.list_pauses.of(kind).is_none_or(|pause| pause.is_read(Instant::now()))
    }

    /// Whether the server is reached with the credentials of callers only, and not with the gateway's own.
    #[must_use]
    pub const fn per_caller_credentials(&self) -> bool {
        self.per_caller_credentials
    }

    /// Logs why the server failed a request, if `said`, its failed result or its error, names a path that the sandbox of
    /// its program denies.
    pub fn explain_denial(
        &self,
        request: FailedRequest<'_>,
        said: Value<'_>,
        now: std::time::Instant,
    ) {
        if let Some(denials) = &self.sandbox_denials {
            denials.explain(request, said, now);
        }
    }

    /// The last lines on the error output of the program that ended last, and the path its sandbox refused. Empty for
    /// a server at a URL.
    #[must_use]
    pub fn last_words(&self) -> LastOutput {
        self.server_log.as_ref().map(|server_log| server_log.last()).unwrap_or_default()
    }

    /// The server's information in each era that it speaks. The flag is false if an attempt in the legacy era failed
    /// without a clear refusal, so that era is not known.
    ///
    /// Needs no proof: an operator who looks at the server is the reason, and the gateway asks for itself.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn server_infos(&self) -> Result<(Vec<Arc<ServerInfo>>, bool), UpstreamError> {
        let on_behalf = &OnBehalfOf::gateway();
        let mut whole = true;
        let mut server_infos = vec![Arc::clone(&self.known(on_behalf).await?.server_info)];
        if server_infos.iter().all(|server_info| server_info.era == Era::Modern) {
            // A legacy client is served in its own era where the server speaks it, so that era counts too.
            match self.legacy_session(on_behalf).await {
                Ok(Some(opened)) => {
                    server_infos.push(Arc::clone(&opened.server_info));
                    if let Some(upstream_session) = &opened.upstream_session {
                        self.close(on_behalf, upstream_session, opened.since.elapsed()).await;
                    }
                }
                Ok(None) => {}
                Err(_) => whole = false,
            }
        }
        Ok((server_infos, whole))
    }

    /// Reports, once, that a definition of this server is withheld from a caller because of `finding`.
    pub fn withheld(&self, offer: &CatalogItem, finding: &Finding) {
        self.pin_monitor.withheld(&self.name, offer, finding);
    }

    /// Reports, once, that the server's instructions are withheld. `digest` is that of its server information.
    pub fn withheld_instructions(&self, digest: Option<Digest>, finding: &Finding) {
        self.pin_monitor.report_instructions(&self.name, digest, finding, FindingEffect::Withheld);
    }

    /// Reports, once, that the server's instructions are shown although `finding` is likely.
    pub fn suspect_instructions(&self, digest: Option<Digest>, finding: &Finding) {
        self.pin_monitor.report_instructions(&self.name, digest, finding, FindingEffect::Shown);
    }

    /// Compares the server's information with the approved one.
    pub fn compare(&self, server_info: &ServerInfo) {
        if let Some(said) = &server_info.said {
            self.pin_monitor.note_server(&self.name, said, server_info.digest);
        }
    }

    /// The server's name and a digest of its address.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The metrics of this server.
    #[must_use]
    pub fn counts(&self) -> &ServerMetrics {
        &self.counts
    }

    /// Checks that a permit is for this server.
    fn takes(&self, permit: &ServerPermit) -> Result<(), UpstreamError> {
        if *permit.server() == self.name { Ok(()) } else { Err(MISDIRECTED) }
    }

    /// The server's information: era, name, instructions and capabilities. Takes the permit of the server, and the entry
    /// of the exchange that asks.
    ///
    /// ```
    /// # use gateway::{audit::ReadEntry, upstream::{OnBehalfOf, Upstream}};
    /// # use policy::engine::pipeline::ServerPermit;
    /// # async fn ask(upstream: &Upstream, permit: ServerPermit, entry: &ReadEntry, caller: &OnBehalfOf) {
    /// drop(upstream.server_info(permit, entry, caller).await);
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use gateway::{audit::ReadEntry, upstream::{OnBehalfOf, Upstream}};
    /// # use policy::engine::pipeline::{Facts, Policy};
    /// # async fn ask(upstream: &Upstream, policy: &Policy, facts: &Facts, entry: &ReadEntry, caller: &OnBehalfOf) {
    /// # let who = caller.principal.as_ref().unwrap();
    /// let permit = policy.grants_any(facts, who, upstream.name()); // the answer to a question
    /// drop(upstream.server_info(permit, entry, caller).await);
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the server cannot be reached, or the permit is for another one.
    pub async fn server_info(
        &self,
        permit: ServerPermit,
        _on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
    ) -> Result<Arc<ServerInfo>, UpstreamError> {
        self.takes(&permit)?;
        Ok(Arc::clone(&self.known(on_behalf).await?.server_info))
    }

    /// Opens a session for a legacy client. A server that speaks both eras is spoken to in the client's, so nothing
    /// has to be translated. Returns no session where the client has none of its own with this server. Takes the permit
    /// of the server, and the entry of the handshake.
    ///
    /// # Errors
    /// If the server cannot be reached, or the permit is for another one.
    pub async fn open(
        &self,
        permit: ServerPermit,
        _on_record: &ReadEntry,
        version: ProtocolVersion,
        on_behalf: &OnBehalfOf,
    ) -> Result<(Arc<ServerInfo>, Option<UpstreamSession>), UpstreamError> {
        self.takes(&permit)?;
        match &self.transport {
            Transport::Http(_) if !self.modern_alone.load(Ordering::Relaxed) => {
                match self.noted(self.session(version, on_behalf, ConnectionScope::Session).await) {
                    Ok(opened) => {
                        return Ok((Arc::clone(&opened.server_info), opened.upstream_session));
                    }
                    Err(error) if error.is_open() => return Err(error),
                    Err(error) => {
                        // Either the server has no `initialize`, or it cannot be reached: detecting its era tells the
                        // two cases apart.
                        let known = self.known(on_behalf).await?;
                        if known.server_info.era == Era::Legacy {
                            return Err(error);
                        }
                        self.modern_alone.store(true, Ordering::Relaxed);
                        return Ok((Arc::clone(&known.server_info), None));
                    }
                }
            }
            Transport::Channel(pool) if pool.own() => {
                let opened =
                    self.noted(self.session(version, on_behalf, ConnectionScope::Session).await)?;
                return Ok((Arc::clone(&opened.server_info), opened.upstream_session));
            }
            Transport::Channel(pool)
                if pool.may_be_own(on_behalf.client.answers_any(&self.server_requests)) =>
            {
                if let Some(opened) =
                    self.legacy_session_in_own_process(pool, version, on_behalf).await
                {
                    return Ok((Arc::clone(&opened.server_info), opened.upstream_session));
                }
            }
            Transport::Http(_) | Transport::Channel(_) => {}
        }
        Ok((Arc::clone(&self.known(on_behalf).await?.server_info), None))
    }

    /// Ends a session that was opened for a client. `age` is how long it has lasted, for the metrics.
    ///
    /// Needs no proof: nothing but the end of the session is sent, and it has to end where the caller has lost every
    /// right, where the gateway needs the room, and where no client is there any more.
    pub async fn close(
        &self,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
        age: Duration,
    ) {
        self.over(upstream_session, age, SessionEnd::Closed);
        self.catalogs.remove(&CatalogOwner::Session(upstream_session.clone()));
        match &self.transport {
            Transport::Http(http) => {
                let farewell = request::initialized(on_behalf, upstream_session);
                let ended =
                    tokio::time::timeout(self.limits.response_timeout, http.end(&farewell)).await;
                if let Ok(Err(error)) = ended {
                    let error = crate::base::error_chain::ErrorChain(&error);
                    tracing::debug!(
                        server = %self.name, %error,
                        "the session with the server could not be ended"
                    );
                }
            }
            Transport::Channel(pool) => upstream_session.id.iter().for_each(|id| pool.close(id)),
        }
    }

    /// The session in which requests for `on_behalf` are made, opened if necessary; `None` where the server has no
    /// sessions. What makes the request has the proofs.
    async fn reach(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
    ) -> Result<Option<UpstreamSession>, UpstreamError> {
        if let Some(upstream_session) = &on_behalf.upstream_session {
            return Ok(Some(upstream_session.clone()));
        }
        let known = self.known(on_behalf).await?;
        if self.keeps_sessions(known.server_info.era) && on_behalf.principal.is_some() {
            return Box::pin(self.gateway_session(on_behalf)).await.map(Some);
        }
        Ok(known.upstream_session.clone())
    }

    /// Forgets the session that [`Self::reach`] returned, because the server no longer knows it.
    fn lost(&self, on_behalf: &OnBehalfOf, upstream_session: Option<&UpstreamSession>) {
        if let Some(upstream_session) = upstream_session {
            self.forget(on_behalf, upstream_session);
        }
        self.known_by.remove(&on_behalf.session_key());
        let known = self.known.load_full();
        if let Some(known) =
            known.filter(|known| known.upstream_session.as_ref() == upstream_session)
        {
            let before = self.known.compare_and_swap(&known, None);
            let ours = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &known));
            if let Some(upstream_session) = upstream_session.filter(|_| ours) {
                self.over(upstream_session, known.since.elapsed(), SessionEnd::Lost);
            }
        }
    }

    /// Records the age of a session that has ended. The modern era has no sessions.
    fn over(&self, upstream_session: &UpstreamSession, age: Duration, end: SessionEnd) {
        match (upstream_session.version.era(), end) {
            (Era::Legacy, SessionEnd::Closed) => self.counts.session_ended(age),
            (Era::Legacy, SessionEnd::Lost) => self.counts.session_lost(age),
            (Era::Modern, _) => {}
        }
    }

    /// Lists the server's definitions of one kind, not older than the server's own cache lifetime for them. Takes the
    /// permit of the list, and the entry of the exchange that asks.
    ///
    /// # Errors
    /// If the list cannot be read, or the permit is for another server or a call.
    pub async fn list(
        self: &Arc<Self>,
        permit: Permit,
        _on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
        patience: Duration,
    ) -> Result<(Expectation, Arc<Listing>), UpstreamError> {
        let (call, expectation) = permit.spend();
        match call {
            ClientRequest::List { server, kind } if server == self.name => {
                Ok((expectation, self.listing(on_behalf, kind, Duration::ZERO, patience).await?))
            }
            ClientRequest::List { .. } | ClientRequest::Use(_) => Err(MISDIRECTED),
        }
    }

    /// Takes a place among the calls of the server; `None` if they have no bound. Sends nothing.
    ///
    /// # Errors
    /// If all places are taken, or those of the caller.
    pub fn enter(&self, holder: &Holder) -> Result<Option<Share<Holder>>, ShareError> {
        self.calls.as_ref().map(|calls| calls.take(holder, 1)).transpose()
    }

    /// Makes the call of `permit`, whose intent is in the log.
    ///
    /// # Errors
    /// If the server does not begin to answer, or the permit is for another server or a list, or the answers of the client
    /// were cleared for another server.
    pub async fn call(
        self: &Arc<Self>,
        permit: Cleared,
        _on_record: &Intent,
        on_behalf: OnBehalfOf,
        options: CallOptions,
    ) -> Result<(Expectation, Box<CallAnswer>), UpstreamError> {
        let (call, expectation) = permit.into_permit().spend();
        let call = match call {
            ClientRequest::Use(call) if call.server == self.name => Arc::new(call),
            ClientRequest::Use(_) | ClientRequest::List { .. } => return Err(MISDIRECTED),
        };
        if options.inputs.as_ref().is_some_and(|inputs| *inputs.server() != self.name) {
            return Err(MISDIRECTED);
        }
        let patience = options.patience(self.limits.call_timeout);
        let upstream_session =
            self.reach_again(&on_behalf, &options.retries, Instant::now() + patience).await?;
        if let (Some(upstream_session), Some(level), None) =
            (&upstream_session, &options.level, &on_behalf.upstream_session)
        {
            Box::pin(self.lower(&on_behalf, upstream_session, level)).await;
        }
        let (upstream, deadline) = (Arc::clone(self), Instant::now() + patience);
        // From here on, dropping the answer cancels the call, also before the server has begun to answer.
        let mut answer = Box::new(CallAnswer {
            upstream,
            messages: None,
            over: false,
            id: self.id(),
            call,
            options,
            on_behalf,
            upstream_session,
            deadline,
            lost: None,
            pass: BreakerPass::default(),
            attempts: 0,
            pings: Gcra::new(),
            aside: None,
            ahead: 0,
            reports: false,
            last: None,
            received: None,
            pending: None,
            interim: None,
        });
        answer.aside = self.aside(&answer);
        match answer.start_again().await {
            Err(UpstreamError::SessionGone) if answer.on_behalf.upstream_session.is_none() => {
                // The server forgot the gateway's own session and did not accept the call, so it is safe to repeat it
                // once.
                self.lost(&answer.on_behalf, answer.upstream_session.as_ref());
                answer.upstream_session = self.reach(&answer.on_behalf).await?;
                let (inputs, state) = (answer.options.inputs.take(), answer.options.state.take());
                Box::pin(answer.again(inputs, state)).await?;
            }
            started => self.noted(started)?,
        }
        Ok((expectation, answer))
    }

    /// Reaches the server for a call, again if the connection to it fails and the call may be repeated.
    async fn reach_again(
        self: &Arc<Self>,
        on_behalf: &OnBehalfOf,
        retries: &RetryCount,
        deadline: Instant,
    ) -> Result<Option<UpstreamSession>, UpstreamError> {
        loop {
            match self.reach(on_behalf).await {
                Err(error) if retries.again(&error, deadline).await => {}
                reached => return reached,
            }
        }
    }

    /// Forwards the notification of `permit`, whose intent is in the log. `share` is the part of the budget for request
    /// bytes that the notification holds until it is sent.
    ///
    /// # Errors
    /// If the server does not take it, or the permit is for another server, a list or a request.
    pub async fn tell(
        self: &Arc<Self>,
        permit: Cleared,
        _on_record: &Intent,
        on_behalf: &OnBehalfOf,
        share: Option<Arc<Share<Holder>>>,
    ) -> Result<(), UpstreamError> {
        let (call, _) = permit.into_permit().spend();
        match call {
            ClientRequest::Use(ItemRequest {
                server,
                verb: RequestOperation::Other,
                name,
                extra,
                meta,
                ..
            }) if server == self.name => {
                // No notification is sent while the circuit is open either.
                if let Some(breaker) = &self.breaker {
                    breaker.look(Instant::now())?;
                }
                let upstream_session = self.reach(on_behalf).await?;
                let speaker = on_behalf.speaker(upstream_session.as_ref());
                let outgoing = request::other(None, &name, &extra, &meta, speaker);
                let outgoing = Outgoing { share, ..outgoing };
                self.notify(&outgoing, Instant::now() + self.limits.response_timeout).await
            }
            ClientRequest::Use(_) | ClientRequest::List { .. } => Err(MISDIRECTED),
        }
    }

    /// Sends a legacy server the log level that the client of a session has set, and returns the outcome. Takes the
    /// permit of the server, and the entry of the exchange that asks.
    ///
    /// # Errors
    /// If the server does not take it or does not answer, or the permit is for another one.
    pub async fn set_level(
        &self,
        permit: ServerPermit,
        _on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
        level: &'static str,
    ) -> Result<ResponseOutcome, UpstreamError> {
        self.takes(&permit)?;
        let speaker = RequestContext {
            client: Client::gateway(),
            ..on_behalf.speaker(Some(upstream_session))
        };
        self.ask_for_level(level, speaker).await
    }

    /// Sends the log level of a session.
    async fn ask_for_level(
        &self,
        level: &str,
        speaker: RequestContext<'_>,
    ) -> Result<ResponseOutcome, UpstreamError> {
        let params = [("level".into(), request::text(level)?)];
        self.short(method::SET_LEVEL, &params, speaker).await
    }

    /// Tells a legacy server that the roots of a session's client have changed. Takes the permit of the server, and the
    /// entry of the exchange that says so.
    ///
    /// # Errors
    /// If the server does not take it, or the permit is for another one.
    pub async fn roots_changed(
        &self,
        permit: ServerPermit,
        _on_record: &ReadEntry,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
    ) -> Result<(), UpstreamError> {
        self.takes(&permit)?;
        let speaker = RequestContext {
            client: Client::gateway(),
            ..on_behalf.speaker(Some(upstream_session))
        };
        let deadline = Instant::now() + self.limits.response_timeout;
        let outgoing = request::other(None, method::ROOTS_CHANGED, &[], &[], speaker);
        self.notify(&outgoing, deadline).await
    }

    /// Sends a request with a short answer and waits for its outcome.
    async fn short(
        &self,
        method: &str,
        params: &[(Box<str>, Fragment)],
        speaker: RequestContext<'_>,
    ) -> Result<ResponseOutcome, UpstreamError> {
        let id = self.id();
        let deadline = Instant::now() + self.limits.response_timeout;
        let outgoing = request::other(Some(id), method, params, &[], speaker);
        let mut messages = self.send(&outgoing, deadline).await?;
        let outcome = self.wait(&mut messages, id, speaker, deadline).await?;
        self.done(messages);
        Ok(outcome)
    }

    fn id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the server is revoked, so that the gateway asks it nothing, not even for itself.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Checks that a server at a URL is the approved one, so that nothing, least of all a credential, is sent to
    /// another. A program is checked before it is started.
    fn approved(&self) -> Result<(), UpstreamError> {
        match &self.transport {
            Transport::Http(_) if self.pin_monitor.is_identity_mismatch(&self.name) => {
                Err(UpstreamError::IdentityMismatch)
            }
            Transport::Http(_) | Transport::Channel(_) => Ok(()),
        }
    }

    async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<IncomingMessages, UpstreamError> {
        let deadline = deadline.min(Instant::now() + self.limits.response_timeout);
        let mut pass = self.admitted(outgoing, deadline).await?;
        let incoming = match &self.transport {
            Transport::Http(_) => {
                let sent = timeout_at(deadline, self.dispatch(outgoing)).await;
                sent.unwrap_or(Err(UpstreamError::Timeout(self.limits.response_timeout)))
            }
            // Each step over a channel has a time limit of its own, because a program may have to be started first.
            Transport::Channel(_) => self.dispatch(outgoing).await,
        };
        let incoming = incoming.inspect_err(|error| pass.refused(error))?;
        Ok(IncomingMessages { incoming, pass })
    }

    /// Obtains permission from the circuit breaker to send a request, after the credential for it is ready.
    ///
    /// # Errors
    /// If the server is revoked or not the approved one, if its circuit is open, or if no credential is available in time.
    async fn admitted(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<BreakerPass, UpstreamError> {
        if self.is_revoked() {
            return Err(UpstreamError::Revoked);
        }
        self.approved()?;
        if let (Transport::Http(http), Some(breaker)) = (&self.transport, &self.breaker) {
            // The authorization server is a different party: its silence must not count as a failure of the upstream
            // server, and the breaker's slot is not held while the gateway waits for it.
            let now = Instant::now();
            breaker.look(now)?;
            let deadline = deadline.min(now + self.limits.response_timeout);
            let ready = timeout_at(deadline, http.ready(outgoing)).await;
            ready.map_err(|_late| UpstreamError::Timeout(self.limits.response_timeout))??;
        }
        if outgoing.method == method::LISTEN { self.pass_to_listen() } else { self.pass() }
    }

    /// Obtains permission from the circuit breaker to listen. Its outcome counts neither there nor as the health of the
    /// server: a server may answer calls and no subscription, which is asked for again and again.
    ///
    /// # Errors
    /// While the circuit is open.
    fn pass_to_listen(&self) -> Result<BreakerPass, UpstreamError> {
        self.breaker.as_ref().map_or(Ok(()), |breaker| breaker.look(Instant::now()))?;
        Ok(BreakerPass::default())
    }

    /// Obtains permission from the circuit breaker to send one request.
    ///
    /// # Errors
    /// While the circuit is open.
    fn pass(&self) -> Result<BreakerPass, UpstreamError> {
        let now = Instant::now();
        let pass = self.breaker.as_ref().map(|breaker| breaker.admit(now)).transpose()?;
        Ok(pass.unwrap_or_default().counted(&self.health, now))
    }

    /// Sends a request. Over HTTP, returns when the headers of the response have arrived.
    async fn dispatch(&self, outgoing: &Outgoing<'_>) -> Result<Incoming, UpstreamError> {
        match &self.transport {
            Transport::Http(http) => Ok(Incoming::Http(http.send(outgoing).await?, None)),
            Transport::Channel(pool) => {
                let channel = Box::pin(pool.channel(self.seat(outgoing))).await?;
                let answer = channel.send(outgoing, self.limits.connect_timeout).await?;
                Ok(Incoming::Channel(answer))
            }
        }
    }

    async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        deadline: Instant,
    ) -> Result<(), UpstreamError> {
        self.approved()?;
        match &self.transport {
            Transport::Http(http) => {
                let sent = timeout_at(deadline, http.notify(outgoing)).await;
                sent.map_err(|_late| UpstreamError::Timeout(self.limits.response_timeout))?
            }
            Transport::Channel(pool) => {
                let channel = Box::pin(pool.channel(self.seat(outgoing))).await?;
                channel.notify(outgoing, self.limits.connect_timeout).await
            }
        }
    }

    /// The session whose own channel a message belongs on. `None` over HTTP and for a session on a shared channel,
    /// which has no id.
    fn seat<'a>(&self, outgoing: &Outgoing<'a>) -> Option<&'a str> {
        match &self.transport {
            Transport::Channel(_) => outgoing.session,
            Transport::Http(_) => None,
        }
    }

    /// Waits for the response. Notifications before it are handled as outside of a call, and requests are refused.
    async fn wait(
        &self,
        messages: &mut IncomingMessages,
        id: i64,
        speaker: RequestContext<'_>,
        deadline: Instant,
    ) -> Result<ResponseOutcome, UpstreamError> {
        loop {
            let message = messages.next(deadline, self.limits.response_timeout).await?;
            match message.ok_or_else(|| messages.broken_off())? {
                message @ Message::Response(_) => return self.outcome(message, id),
                Message::Notification(told) => self.heard(&told),
                Message::Request(question) => {
                    let refusal = ServerReply::unasked(&question, "nothing else is offered");
                    let reply = request::reply(refusal, speaker);
                    if let Err(error) = self.notify(&reply, deadline).await {
                        let error = crate::base::error_chain::ErrorChain(&error);
                        tracing::debug!(
                            server = %self.name, %error,
                            "the reply to a server request was not sent"
                        );
                    }
                }
            }
        }
    }

    /// The outcome of the request `id`, if `message` is its response.
    fn outcome(&self, message: Message, id: i64) -> Result<ResponseOutcome, UpstreamError> {
        match message {
            // A modern server may omit the id in the error for a request it could not read.
            Message::Response(response)
                if response.id.is_none()
                    && matches!(response.outcome, ResponseOutcome::Error(_)) =>
            {
                Ok(response.outcome)
            }
            Message::Response(response) if response.id == Some(Id::Number(id)) => {
                Ok(response.outcome)
            }
            Message::Response(_) => {
                Err(UpstreamError::Protocol("the server answered another request"))
            }
            Message::Notification(_) | Message::Request(_) => {
                Err(UpstreamError::Protocol("the server did not answer with a response"))
            }
        }
    }

    fn done(&self, messages: IncomingMessages) {
        if let Incoming::Http(answer, _) = messages.incoming
            && !answer.is_over()
        {
            self.tasks.spawn(answer.finish());
        }
    }

    /// Records whether the server was reached, logs failures, and clears cached state that an error shows to be
    /// outdated.
    fn noted<T>(&self, result: Result<T, UpstreamError>) -> Result<T, UpstreamError> {
        match &result {
            Ok(_) => self.counts.reached(),
            // Logged where it was detected.
            Err(error) if error.is_identity_mismatch() => self.counts.not_reached(),
            Err(UpstreamError::SessionGone | UpstreamError::Refused) => {}
            // The server was not asked.
            Err(
                UpstreamError::SessionLimit
                | UpstreamError::Processes(_)
                | UpstreamError::SendQueueFull(_),
            ) => {}
            // The server answers, but the budget has no room for the answer.
            Err(error @ UpstreamError::Memory(_)) => {
                let error = crate::base::error_chain::ErrorChain(error);
                tracing::debug!(server = %self.name, %error, "a response was not read to its end");
            }
            Err(error) if error.is_open() => {}
            // The server rejected the credential, or none could be obtained: neither says that it is unreachable.
            Err(
                error @ (UpstreamError::Unauthorized(_)
                | UpstreamError::WriteScopes(_)
                | UpstreamError::Credential(_)),
            ) => {
                let error = crate::base::error_chain::ErrorChain(error);
                tracing::warn!(
                    event = "server.credential_rejected", server = %self.name, %error,
                    "no credential that the upstream accepts"
                );
            }
            Err(error) => {
                self.counts.not_reached();
                if matches!(error, UpstreamError::Connection(ConnectionError::Connect(_))) {
                    self.replaced();
                }
                // The server may have been replaced by one that speaks another era. One that is slow, or answers a
                // single call badly, has not.
                if matches!(
                    error,
                    UpstreamError::Connection(ConnectionError::Connect(_))
                        | UpstreamError::Status(400..500)
                ) {
                    self.known.store(None);
                    self.known_by.retain(|_, _| false);
                    self.modern_alone
                        .store(self.protocol == ServerProtocol::Modern, Ordering::Relaxed);
                }
                let error = crate::base::error_chain::ErrorChain(error);
                if let Some(suppressed) = self.failures.allow(Instant::now().into_std()) {
                    tracing::warn!(
                        event = "server.failed", server = %self.name, %error, suppressed,
                        "upstream failed"
                    );
                }
            }
        }
        result
    }
}

/// The configured headers that are added to every request.
#[derive(Clone, Debug, Default)]
struct ConfiguredHeaders {
    /// Headers whose values are written in the configuration.
    fixed: HeaderMap,
    /// Headers whose values are secrets, which may change while the gateway runs.
    live: Vec<(HeaderName, Arc<LiveSecret>)>,
}

impl ConfiguredHeaders {
    fn new(
        environment: &Environment,
        headers: &[(HeaderName, VariableValue)],
    ) -> Result<Self, EnvironmentError> {
        let mut extra = Self::default();
        // A request on behalf of a caller has the path of the caller's request in its place.
        extra.fixed.insert(VIA, environment.gateway_id.path());
        for (name, value) in headers {
            match value {
                VariableValue::Literal(text) => {
                    let unusable = |_| EnvironmentError::Header(format!("`headers` for `{name}`"));
                    let mut value = HeaderValue::from_str(text).map_err(unusable)?;
                    value.set_sensitive(true);
                    extra.fixed.insert(name.clone(), value);
                }
                VariableValue::Secret(reference) => {
                    let secret = environment.live(reference)?;
                    credential::header(name, "", &secret)?;
                    extra.live.push((name.clone(), secret));
                }
            }
        }
        Ok(extra)
    }

    /// Writes the headers whose values are secrets into `map`, with their current values.
    fn write(&self, map: &mut HeaderMap) -> Result<(), UpstreamError> {
        for (name, secret) in &self.live {
            let value = credential::header(name, "", secret).map_err(UpstreamError::Environment)?;
            map.insert(name.clone(), value);
        }
        Ok(())
    }
}

/// A proof is for another server, or for something else.
const MISDIRECTED: UpstreamError = UpstreamError::Protocol(
    "internal error: the permit does not match this server or \
                                                            request",
);

/// How connections to `uri` of a server are made.
///
/// # Errors
/// If the URL cannot be used, or a file of its TLS settings cannot be read.
fn target_of(
    server: &ServerSettings,
    uri: &Uri,
    connect_timeout: Duration,
    environment: &Environment,
) -> Result<ConnectTarget, UpstreamError> {
    let secure = uri.scheme_str() == Some("https");
    let tls = secure.then(|| environment.tls(&server.tls)).transpose();
    let tls = tls.map_err(UpstreamError::Environment)?;
    Ok(ConnectTarget::new(uri, server.egress.clone(), tls, connect_timeout)?)
}

/// When the certificate that the server presents now expires; `None` for a program and for a URL without TLS. Needs no
/// proof: an operator is the reason, and no message is sent.
///
/// # Errors
/// If the server cannot be reached, or its certificate is not trusted.
pub async fn certificate_end(
    server: &ServerSettings,
    connect_timeout: Duration,
    environment: &Environment,
) -> Result<Option<SystemTime>, UpstreamError> {
    let uri = match &server.reach {
        ServerTransport::Http(uri) | ServerTransport::HttpSse(uri)
            if uri.scheme_str() == Some("https") =>
        {
            uri
        }
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) | ServerTransport::Stdio(_) => {
            return Ok(None);
        }
    };
    Ok(target_of(server, uri, connect_timeout, environment)?.certificate_end().await?)
}

/// The sandbox of the server's program; `None` for one without a sandbox, or at a URL.
fn sandbox(server: &ServerSettings) -> Option<SandboxPlan> {
    match &server.reach {
        ServerTransport::Stdio(program) => program.sandbox.clone(),
        ServerTransport::Http(_) | ServerTransport::HttpSse(_) => None,
    }
}

fn identity(server: &ServerSettings) -> Box<str> {
    let place = match &server.reach {
        ServerTransport::Http(uri) | ServerTransport::HttpSse(uri) => uri.to_string(),
        ServerTransport::Stdio(program) => format!("{} {:?}", program.command, program.args),
    };
    let digest = json::hex::encode(&crate::base::sha256::sha256(place.as_bytes()));
    format!("{}@{}", server.name.as_str(), digest.get(..12).unwrap_or_default()).into()
}
