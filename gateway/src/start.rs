//! From a configuration to a running gateway, and to its end.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::offer::Kind;
use rustls::ClientConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;

use crate::audit::note::{NoteError, Signer};
use crate::audit::spool::Spool;
use crate::audit::{
    AuditError, Checkpoints, Delivery, FileSink, Journal, Observer, Parts, Receiver, Resumed, Sink,
    Slot, deliver, write_to_stdout,
};
use crate::bounded::Bounded;
use crate::clock::{Clock, System};
use crate::console;
use crate::conversation::Conversations;
use crate::door::Door;
use crate::exchange::{Gateway, Route};
use crate::fetch::FetchError;
use crate::front;
use crate::guardrail::Guardrail;
use crate::identity::Identity;
use crate::kept::Results;
use crate::killswitch::Killswitch;
use crate::metrics::Metrics;
use crate::old::Old;
use crate::ops::{self, Ops};
use crate::pinning::Keeper;
use crate::rates::Rates;
use crate::resource::Resource;
use crate::seal::{SealError, Sealer};
use crate::secret::Secret;
use crate::session::Sessions;
use crate::settings::lockfile::LockError;
use crate::settings::revoked::RevokedError;
use crate::settings::{
    self, Listener, OtlpProtocol, Reach, Scheme, Settings, SinkTarget, Syslog, Value,
};
use crate::task::{self, Tasks};
use crate::telemetry::{Collector, Telemetry};
use crate::tls::{self, Acceptor, TlsError};
use crate::upstream::{Party, Upstream, UpstreamError};
use crate::world::{World, WorldError};

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket is not to be had.
    #[error("could not listen on `{address}`")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A sink cannot be opened.
    #[error("could not open the audit sink `{name}`")]
    Sink {
        /// Which.
        name: Box<str>,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The first record was not taken.
    #[error("could not write the first audit record")]
    Audit(#[source] AuditError),
    /// A session key does not fit.
    #[error("a session key is not 32 bytes in hexadecimal")]
    SessionKey(#[source] SealError),
    /// A server cannot be set up.
    #[error("could not set up the server `{name}`")]
    Server {
        /// Which.
        name: Box<str>,
        /// Why.
        #[source]
        cause: UpstreamError,
    },
    /// It is not clear which route a client is to be served on.
    #[error("there is no such route, or more than one; name one with `--route`")]
    Route,
    /// There can be no more threads.
    #[error("could not start the threads")]
    Threads(#[source] io::Error),
    /// What was approved cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What was revoked cannot be read.
    #[error(transparent)]
    Revoked(#[from] RevokedError),
    /// Something outside cannot be used.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The TLS of a listener cannot be set up.
    #[error("could not set up the TLS of the listener `{name}`")]
    Tls {
        /// Which.
        name: Box<str>,
        /// Why.
        #[source]
        cause: TlsError,
    },
}

/// A gateway whose sockets are bound.
#[derive(Debug)]
pub struct Running {
    /// Where clients connect: the name of each listener, its address, and whether it speaks TLS.
    pub listeners: Vec<(Arc<str>, SocketAddr, bool)>,
    /// Where the operator connects.
    pub ops: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    upstreams: Vec<Arc<Upstream>>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a gateway.
///
/// # Errors
/// When anything it needs is not to be had; then nothing is left running.
pub fn start(settings: Settings) -> Result<Running, StartError> {
    launch(settings, true)
}

/// Starts a gateway that listens nowhere, for a client that started it.
///
/// # Errors
/// When anything it needs is not to be had; then nothing is left running.
pub fn start_inside(settings: Settings) -> Result<Running, StartError> {
    launch(settings, false)
}

fn launch(mut settings: Settings, listens: bool) -> Result<Running, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(System);
    let tasks = Tasks::default();
    let secure = settings.listeners.iter().filter(|one| one.tls.is_some()).map(|one| &*one.name);
    let metrics = Arc::new(Metrics::new(clock.now()).with_certificates(secure));
    let (limits, counts) = (settings.limits, Arc::clone(&metrics));
    let world = World::new(Arc::clone(&clock), limits, tasks.clone(), counts);
    let collector = settings.telemetry.otlp.as_ref().map(|otlp| collector(otlp, &world));
    let telemetry = Telemetry::start(&settings.telemetry, collector.transpose()?, &metrics, &clock);
    let telemetry = Arc::new(telemetry.map_err(StartError::Threads)?);
    let observer: Arc<dyn Observer> = Arc::<Telemetry>::clone(&telemetry);
    let journal = journal(&settings, &world, &metrics, Some(observer))?;
    let sealer = Arc::new(sealer(&settings, &world)?);
    let (lifetime, limits) = (settings.session_lifetime, settings.limits);
    let sessions =
        Sessions::new(Arc::clone(&sealer), lifetime, limits.sessions, Arc::clone(&clock));
    let key = crate::seal::random().map_err(StartError::SessionKey)?;
    let policy = Arc::new(std::mem::take(&mut settings.policy).with_key(key));
    let keeper = Keeper::new(
        Arc::clone(&policy),
        settings.pins.clone(),
        Arc::clone(&journal),
        Arc::clone(&metrics),
    )?;
    let keeper = Arc::new(keeper);
    let upstreams = upstreams(&settings, &world, &metrics, &keeper)?;
    let names: Vec<_> = settings.servers.iter().map(|server| server.name.as_str()).collect();
    metrics.configured(&names, std::mem::take(&mut settings.names));
    metrics.reloaded(true, clock.now());
    let mut doors = Vec::new();
    for listener in settings.listeners.iter().filter(|_| listens) {
        let bound = bind(listener.address)?;
        doors.push((Arc::new(door(&settings, listener, local(&bound), &clock)?), bound));
    }
    let ops_listener = match settings.ops.as_ref().filter(|_| listens) {
        Some(ops) => Some(bind(ops.address)?),
        None => None,
    };
    let ops_token = settings.ops.as_ref().and_then(|ops| ops.token.as_ref());
    let ops_token = ops_token.map(|token| world.secret(token)).transpose()?.map(Arc::new);
    let identity = Identity::new(&settings.identity, &world, &limits, Arc::clone(&sealer))?;
    let workers = task::parallelism();
    let old = settings.routes.iter().filter(|route| route.old).map(|route| route.path.clone());
    let old = Arc::new(Old::new(old.collect(), limits.sessions));
    let gateway = Arc::new(Gateway {
        identity,
        sessions,
        routes: routes(&settings, &upstreams, &world)?,
        policy,
        journal: Arc::clone(&journal),
        configuration: format!("sha256:{}", settings.digest).into(),
        limits,
        conversations: Conversations::new(limits, Arc::clone(&clock)),
        parking: Bounded::new(limits.parked),
        rates: Rates::new(limits.sessions),
        results: Results::new(limits.kept_results, limits.kept_time),
        sealer,
        clock,
        metrics: Arc::clone(&metrics),
        telemetry,
        tasks: tasks.clone(),
        calls: Bounded::new(limits.sessions),
        revoking: watch::Sender::new(()),
    });
    tasks.spawn_service(Arc::clone(&gateway).tend());
    tasks.spawn_service(Arc::clone(&journal).tend(tasks.clone()));
    tasks.spawn_service(Arc::clone(&keeper).tend(tasks.clone()));
    let switch = Killswitch::new(Arc::clone(&gateway), settings.revocations)?;
    let switch = Arc::new(switch);
    tasks.spawn_service(Arc::clone(&switch).tend());
    tasks.spawn_service(tend_identity(Arc::clone(&gateway)));
    for (door, _) in &doors {
        tasks.spawn_service(renew(Arc::clone(&gateway), Arc::clone(door)));
    }
    upstreams.iter().for_each(Upstream::tend);
    if let Some(every) = keeper.recheck() {
        for upstream in upstreams.iter().filter(|one| !one.asks_callers()) {
            tasks.spawn_service(recheck(Arc::clone(upstream), tasks.clone(), every));
        }
    }
    let mut listeners = Vec::new();
    for (door, listener) in &doors {
        listeners.push((Arc::clone(&door.name), local(listener), door.tls.is_some()));
    }
    let ops = ops_listener.as_ref().map(local);
    if let Some(listener) = ops_listener {
        let (gateway, tasks_of) = (Arc::clone(&gateway), tasks.clone());
        let ops = Ops { metrics, journal, gateway, tasks: tasks_of, switch, token: ops_token };
        tasks.spawn(ops::serve(ops, listener));
    }
    let shares = shares(&doors, workers)?;
    let serving = Arc::clone(&gateway);
    let threads = tasks.workers(workers, move |worker| {
        for (door, listener) in shares.get(worker).into_iter().flatten() {
            front::begin(&serving, &old, door, listener);
        }
    });
    let threads = threads.map_err(StartError::Threads)?;
    let running = Running { listeners, ops, gateway, upstreams, threads };
    running.greet();
    Ok(running)
}

impl Running {
    /// Serves the client at standard input and output on the route `path`, or on the only one there
    /// is, until it closes its end. It calls with the API key `key`, or without a credential.
    ///
    /// # Errors
    /// When it is not clear which route is meant.
    pub async fn serve_inside(
        &self,
        path: Option<&str>,
        key: Option<Secret>,
    ) -> Result<(), StartError> {
        let routes = &self.gateway.routes;
        let only = (routes.len() == 1).then(|| routes.keys().next()).flatten();
        let path = path.or(only.map(|path| &**path)).filter(|path| routes.contains_key(*path));
        let path = path.and_then(|path| path.parse().ok()).ok_or(StartError::Route)?;
        let scheme = if key.is_some() { Scheme::ApiKey } else { Scheme::Anonymous };
        let door = Door::plain("stdio".into(), vec![scheme]);
        console::serve(Arc::clone(&self.gateway), door, path, key).await;
        Ok(())
    }

    /// Asks every server for its tools, so that the first caller does not wait for it. A server
    /// that does not answer is asked again when somebody calls it.
    fn greet(&self) {
        for upstream in self.upstreams.iter().filter(|one| !one.asks_callers()) {
            let upstream = Arc::clone(upstream);
            let tasks = self.gateway.tasks.clone();
            self.gateway.tasks.spawn(async move {
                let ourselves = Party::gateway();
                tokio::select! {
                    read = upstream.catalog(&ourselves, Kind::Tool) => if let Ok(listing) = read {
                        let count = listing.catalog().offers().len();
                        tracing::info!(server = %upstream.name(), tools = count, "catalogue read");
                    },
                    () = tasks.stopping() => {}
                }
            });
        }
    }

    /// Stops: no new connections, a time for what is in flight, and the last record.
    pub async fn stop(self) {
        front::drain(&self.gateway.tasks, self.gateway.limits.drain_time).await;
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker ended in a panic");
            }
        }
        self.gateway.journal.stop().await;
        self.gateway.telemetry.stop().await;
    }
}

/// A listener's door: what its routes are to clients of OAuth, and its TLS.
fn door(
    settings: &Settings,
    listener: &Listener,
    bound: SocketAddr,
    clock: &Arc<dyn Clock>,
) -> Result<Door, StartError> {
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    let local = || format!("{scheme}://{bound}").into();
    let public: Box<str> = listener.public.clone().unwrap_or_else(local);
    let mut resources = HashMap::new();
    if listener.schemes.contains(&Scheme::Oauth) {
        let mutual = listener.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
            || listener.forwarded.is_some();
        for route in &settings.routes {
            let issuers = &settings.identity.issuers;
            let resource = Resource::new(&public, &route.path, &route.oauth, issuers, mutual);
            resources.insert(route.path.clone(), resource);
        }
    }
    let failed = |cause| StartError::Tls { name: listener.name.clone(), cause };
    let tls = listener.tls.as_ref().map(|tls| Acceptor::new(tls, clock.now()));
    Ok(Door::new(listener, resources, tls.transpose().map_err(failed)?))
}

/// Keeps what is known of issuers fresh.
async fn tend_identity(gateway: Arc<Gateway>) {
    tokio::select! {
        () = gateway.identity.tend() => {}
        () = gateway.tasks.halting() => {}
    }
}

/// Asks a server for all its lists now and then, whatever it says about how long they last: a
/// definition that changes in secret is found without anybody calling.
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

/// Takes new certificates for a listener when its files change.
async fn renew(gateway: Arc<Gateway>, door: Arc<Door>) {
    let Some(acceptor) = &door.tls else { return };
    let mut turn = tokio::time::interval(tls::WATCH);
    loop {
        tokio::select! {
            _ = turn.tick() => {}
            () = gateway.tasks.halting() => return,
        }
        match acceptor.renew(gateway.clock.now()) {
            Ok(false) => {}
            Ok(true) => tracing::info!(listener = %door.name, "new certificates are used"),
            Err(error) => {
                let error = crate::report::Chain(&error);
                tracing::error!(listener = %door.name, %error, "new certificates cannot be used");
            }
        }
        gateway.metrics.certificate(&door.name, acceptor.ends());
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    let failed = |cause| StartError::Bind { address, cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Every listener for every worker: one queue of connections, taken from by whoever is free.
type Shares = Arc<Vec<Vec<(Arc<Door>, TcpListener)>>>;

fn shares(doors: &[(Arc<Door>, TcpListener)], workers: usize) -> Result<Shares, StartError> {
    let share = |(door, listener): &(Arc<Door>, TcpListener)| {
        let address = local(listener);
        let copy = listener.try_clone().map_err(|cause| StartError::Bind { address, cause })?;
        Ok((Arc::clone(door), copy))
    };
    let shares = (0..workers).map(|_| doors.iter().map(share).collect());
    shares.collect::<Result<_, _>>().map(Arc::new)
}

fn local(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

/// The journal over what the configuration names.
///
/// # Errors
/// When a sink cannot be opened, or does not take the first record.
pub(crate) fn journal(
    settings: &Settings,
    world: &World,
    metrics: &Arc<Metrics>,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Arc<Journal>, StartError> {
    let (mut sinks, mut deliveries) = (Vec::new(), Vec::new());
    let mut resumed: Option<Resumed> = None;
    let mut ends = Vec::new();
    for sink in &settings.audit.sinks {
        let failed = |cause| StartError::Sink { name: sink.name.clone(), cause };
        let (spool, outlet) = Spool::new(&sink.name, sink.spool);
        let opened: Box<dyn Sink> = match &sink.to {
            SinkTarget::File(path, rotation) => {
                let opened = FileSink::open(&sink.name, path, *rotation, world.clock.now());
                let (file, end) = opened.map_err(failed)?;
                ends.push(end.as_ref().map(|end| end.chain.tree.size()));
                let known = resumed.as_ref().zip(end.as_ref());
                if known.is_some_and(|(one, other)| one.chain.id != other.chain.id) {
                    let other = "it has the records of another chain; move the file away";
                    return Err(failed(io::Error::other(other)));
                }
                let longer = |end: &Resumed| {
                    let known = resumed.as_ref().map(|known| known.chain.tree.size());
                    known.is_none_or(|known| end.chain.tree.size() > known)
                };
                if end.as_ref().is_some_and(longer) {
                    resumed = end;
                }
                Box::new(file)
            }
            SinkTarget::Stdout => {
                write_to_stdout(outlet).map_err(failed)?;
                ends.push(None);
                Box::new(spool)
            }
            SinkTarget::Http(..) | SinkTarget::Syslog(..) => {
                let (name, format, to) = (sink.name.clone(), sink.format, receiver(sink, world)?);
                deliveries.push(Delivery { name, outlet, format, to });
                ends.push(None);
                Box::new(spool)
            }
        };
        sinks.push(Slot { sink: opened, full: sink.full, missing: None });
    }
    let next = resumed.as_ref().map_or(0, |resumed| resumed.chain.tree.size());
    for (slot, end) in sinks.iter_mut().zip(ends) {
        // One that ends earlier than another lacks what came after.
        slot.missing = end.filter(|end| *end < next).map(|end| (end, next - 1));
    }
    deliver(deliveries).map_err(StartError::Threads)?;
    let audit = &settings.audit;
    let key = audit.digest_key.as_ref().map(|key| world.secret(key)).transpose()?;
    let parts = Parts {
        sinks,
        resumed,
        checkpoints: checkpoints(&audit.checkpoints, world)?,
        policy: format!("sha256:{}", settings.digest),
        digest_key: key.map(|key| key.expose().as_bytes().to_vec()),
        observer,
    };
    let journal = Journal::new(parts, Arc::clone(&world.clock), Arc::clone(metrics));
    journal.map(Arc::new).map_err(StartError::Audit)
}

fn collector(otlp: &settings::Otlp, world: &World) -> Result<Collector, WorldError> {
    let (url, token) = (&otlp.place.url, otlp.token.as_ref());
    let mut ways = world.ways(&otlp.place.way, None)?;
    let endpoint = |path: &str| {
        // The URL is the base: OTLP says what comes after it.
        let base = url.to_string();
        let url = format!("{}{path}", base.trim_end_matches('/'));
        url.parse().map_err(|_unusable| FetchError::Url).and_then(|url| ways.to(&url))
    };
    let endpoints = match otlp.protocol {
        OtlpProtocol::Http => [endpoint("/v1/traces")?, endpoint("/v1/metrics")?],
        OtlpProtocol::Grpc => {
            let mut tls = ClientConfig::clone(&ways.tls);
            tls.alpn_protocols = vec![b"h2".to_vec()];
            ways.tls = Arc::new(tls);
            [ways.to(url)?, ways.to(url)?]
        }
    };
    let token = token.map(|token| world.bearer(token)).transpose()?;
    Ok(Collector { endpoints, protocol: otlp.protocol, token, interval: otlp.interval })
}

fn receiver(sink: &settings::Sink, world: &World) -> Result<Receiver, StartError> {
    Ok(match &sink.to {
        SinkTarget::Http(place, token) => {
            let endpoint = world.ways(&place.way, None)?.to(&place.url);
            let token = token.as_ref().map(|token| world.bearer(token)).transpose()?;
            Receiver::Http(Box::new(endpoint.map_err(WorldError::Url)?), token)
        }
        SinkTarget::Syslog(Syslog::Udp(address), facility) => Receiver::Udp(*address, *facility),
        SinkTarget::Syslog(Syslog::Tcp(address), facility) => Receiver::Tcp(*address, *facility),
        SinkTarget::Syslog(Syslog::Unix(path), facility) => Receiver::Unix(path.clone(), *facility),
        SinkTarget::File(..) | SinkTarget::Stdout => {
            let cause = io::Error::other("nothing is sent to it");
            return Err(StartError::Sink { name: sink.name.clone(), cause });
        }
    })
}

fn checkpoints(settings: &settings::Checkpoints, world: &World) -> Result<Checkpoints, StartError> {
    let broken = |error: NoteError| AuditError::Checkpoint(error.to_string().into());
    let signer = match &settings.key {
        Some(reference) => {
            let secret = world.secret(reference)?;
            let key = PrivatePkcs8KeyDer::from_pem_slice(secret.expose().as_bytes());
            let key = key.map_err(|_none| StartError::Audit(broken(NoteError::Key)))?;
            Signer::read(key.secret_pkcs8_der(), &settings.origin)
        }
        None => Signer::generate(&settings.origin),
    };
    let signer = signer.map_err(|error| StartError::Audit(broken(error)))?;
    let open = |path: &PathBuf| OpenOptions::new().append(true).create(true).open(path);
    let file = settings.file.as_ref().map(open).transpose();
    let file =
        file.map_err(|cause| StartError::Sink { name: "audit.checkpoints.file".into(), cause })?;
    let (records, interval) = (settings.records, settings.interval);
    Ok(Checkpoints { signer, records, interval, file })
}

fn sealer(settings: &Settings, world: &World) -> Result<Sealer, StartError> {
    let mut keys = Vec::new();
    for reference in &settings.session_keys {
        let key = crate::hex::decode(world.secret(reference)?.expose());
        keys.push(key.ok_or(StartError::SessionKey(SealError))?);
    }
    Sealer::new(&keys).map_err(StartError::SessionKey)
}

pub(crate) fn upstreams(
    settings: &Settings,
    world: &World,
    metrics: &Arc<Metrics>,
    keeper: &Arc<Keeper>,
) -> Result<Vec<Arc<Upstream>>, StartError> {
    let mut upstreams = Vec::new();
    for server in &settings.servers {
        let mut environment = Vec::new();
        if let Reach::Stdio(program) = &server.reach {
            for (name, value) in &program.env {
                let value = match value {
                    Value::Literal(text) => Secret::new(text.as_str().into()),
                    Value::Secret(reference) => world.secret(reference)?,
                };
                environment.push((name.clone(), value));
            }
        }
        let keeper = Arc::clone(keeper);
        let upstream = Upstream::new(server, environment, settings.limits, world, metrics, keeper);
        let name = server.name.as_str().into();
        let upstream = upstream.map_err(|cause| StartError::Server { name, cause })?;
        upstreams.push(Arc::new(upstream));
    }
    Ok(upstreams)
}

fn routes(
    settings: &Settings,
    upstreams: &[Arc<Upstream>],
    world: &World,
) -> Result<HashMap<Box<str>, Arc<Route>>, WorldError> {
    let route = |route: &settings::Route| {
        let servers = route.servers.iter().filter_map(|index| upstreams.get(*index).cloned());
        let path: Arc<str> = Arc::from(&*route.path);
        let (servers, prefix) = (servers.collect(), route.prefix);
        let guardrails = route.guardrails.iter().map(|one| Guardrail::new(one, world));
        let guardrails = guardrails.collect::<Result<_, _>>()?;
        Ok((route.path.clone(), Arc::new(Route { path, servers, prefix, guardrails })))
    };
    settings.routes.iter().map(route).collect()
}

/// The file that is run when none is named.
#[must_use]
pub fn quickstart() -> (PathBuf, &'static str) {
    (PathBuf::from("quickstart.yaml"), include_str!("../../config/quickstart.yaml"))
}
