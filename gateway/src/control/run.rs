//! Starts the gateway from its settings, and stops it.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{stdin, stdout};

use crate::base::file::{self, FileTasks};
use crate::base::heartbeat::{self, Heartbeats};
use crate::base::secret::Secret;
use crate::base::systemd;
use crate::base::task::{self, Tasks};
use crate::config::settings::Settings;
use crate::control::admin_api::AdminApi;
use crate::control::admin_listener;
use crate::control::attach::AttachListener;
use crate::control::build::{ConnectionOwner, GenerationWork, ProcessState, bind, lasting, local};
use crate::control::reload::{ConfigInForce, ReloadTargets, Reloader};
use crate::control::revocation::RevocationManager;
use crate::control::selftest::SelftestRunner;
use crate::control::stdio::{StdioServer, StdioServerError, Tenancy};
use crate::control::watchdog::{END, StopTrigger, Watchdog};
use crate::edge::admission::Admission;
use crate::edge::tls::{self, Acceptor};
use crate::exchange::SWEEP;
use crate::process::{open_files, sandbox};
use crate::serve::McpService;
use crate::serve::generation::CurrentGeneration;
use crate::serve::http_sse::HttpSseServer;
use crate::serve::listener;

pub use crate::control::build::{SettingsSource, StartError};

/// Interval between checks of the workers.
const WATCH: Duration = Duration::from_millis(500);

/// Maximum time for the workers to end, and the interval between checks whether they have.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
const JOIN_INTERVAL: Duration = Duration::from_millis(2);

/// A running gateway with bound sockets.
#[derive(Debug)]
pub struct RunningGateway {
    /// The name of each listener that is bound, its address, and whether it uses TLS.
    pub listeners: Vec<(Arc<str>, SocketAddr, bool)>,
    /// The address of the operator's listener.
    pub ops: Option<SocketAddr>,
    live: Arc<CurrentGeneration>,
    http_sse: Arc<HttpSseServer>,
    lasting: Arc<ProcessState>,
    threads: Vec<JoinHandle<()>>,
    /// What begins when the client at standard input is admitted; `None` once it has, and for other gateways.
    deferred: Mutex<Option<GenerationWork>>,
}

/// Whom a gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedClients {
    /// Clients that connect to its listeners.
    OverNetwork,
    /// The client that has started this process. No server is started before that client is admitted.
    AtStdio,
    /// Clients of an application that mounts the gateway as a service.
    OfApplication,
}

impl ServedClients {
    const fn owner(self) -> ConnectionOwner {
        match self {
            Self::OverNetwork | Self::AtStdio => ConnectionOwner::Gateway,
            Self::OfApplication => ConnectionOwner::Application,
        }
    }

    /// The number of worker threads. An application answers requests on its own.
    fn workers(self) -> usize {
        match self {
            Self::OverNetwork | Self::AtStdio => task::parallelism(),
            Self::OfApplication => 0,
        }
    }
}

/// Starts a gateway that reloads `source` when it changes.
///
/// # Errors
/// If any resource cannot be acquired; nothing is left running.
pub async fn start(
    settings: Settings,
    source: Option<Arc<dyn SettingsSource>>,
) -> Result<RunningGateway, StartError> {
    launch(settings, source, ServedClients::OverNetwork).await
}

/// Starts a gateway for an application that mounts it in its own server: no listener is bound, and
/// [`RunningGateway::service`] returns what answers the requests of one. Its tasks run on the runtime of the caller. The
/// admin API listens at `ops`, if the configuration has it. The configuration is read again when `source` changes.
///
/// # Errors
/// If any resource cannot be acquired, or a listener has TLS; nothing is left running.
pub async fn start_mounted(
    settings: Settings,
    source: Option<Arc<dyn SettingsSource>>,
) -> Result<RunningGateway, StartError> {
    launch(settings, source, ServedClients::OfApplication).await
}

/// Starts a gateway without listeners, for the client that started this process.
///
/// # Errors
/// If any resource cannot be acquired; nothing is left running.
pub async fn start_inside(mut settings: Settings) -> Result<RunningGateway, StartError> {
    settings.listeners.clear();
    settings.ops = None;
    launch(settings, None, ServedClients::AtStdio).await
}

async fn launch(
    settings: Settings,
    source: Option<Arc<dyn SettingsSource>>,
    serves: ServedClients,
) -> Result<RunningGateway, StartError> {
    if let Some(warning) = sandbox::privileged() {
        tracing::warn!(event = "process.privileged", note = warning, "the gateway runs as root");
    }
    let ops_listener =
        settings.ops.as_ref().map(|ops| bind(ops.address, "`ops.address`")).transpose()?;
    let (lasting, listeners) = lasting(&settings, serves.owner())?;
    let lasting = Arc::new(lasting);
    let sockets = BoundSockets { listeners, ops: ops_listener };
    match assemble(settings, serves, source, &lasting, sockets) {
        Ok(running) => Ok(running),
        Err(error) => {
            // The first record is written, so the stop must be recorded too, or it would look like a crash.
            lasting.journal.stop().await;
            Err(error)
        }
    }
}

/// The sockets of a gateway, bound before anything is built.
struct BoundSockets {
    /// One for each listener of the configuration.
    listeners: Vec<TcpListener>,
    /// The socket of the admin API, if it is configured.
    ops: Option<TcpListener>,
}

/// Builds and starts everything that serves the configuration.
fn assemble(
    settings: Settings,
    serves: ServedClients,
    source: Option<Arc<dyn SettingsSource>>,
    lasting: &Arc<ProcessState>,
    sockets: BoundSockets,
) -> Result<RunningGateway, StartError> {
    let BoundSockets { listeners, ops: ops_listener } = sockets;
    // The limits of an application are its own.
    if serves != ServedClients::OfApplication
        && let Err(error) = open_files::raise()
    {
        tracing::warn!(
            event = "process.limit_not_raised", %error,
            "the limit of open files could not be raised"
        );
    }
    let environment = lasting.environment(&lasting.tasks);
    let ops_door = settings.ops.as_ref().map(Admission::of_operator);
    let token = settings.ops.as_ref().and_then(|ops| ops.token.as_ref());
    let token = token.map(|token| environment.live(token)).transpose()?;
    let (revocations, sections) = (settings.revocations.clone(), settings.sections.clone());
    let text_digest = settings.text_digest;
    let built = lasting.build(settings, None)?;
    let (pin_monitor, digest) = (built.pin_monitor(), built.digest.clone());
    let live = Arc::new(CurrentGeneration::new(built.generation));
    let tasks = &lasting.tasks;
    let switch = RevocationManager::new(Arc::clone(&live), revocations, tasks.clone())?;
    let switch = Arc::new(switch);
    // After the revocations are in force: a revoked server is asked nothing, and its program is not started.
    let deferred = match serves {
        ServedClients::OverNetwork | ServedClients::OfApplication => {
            lasting.begin(&built.work);
            None
        }
        ServedClients::AtStdio => Some(built.work),
    };
    let workers = serves.workers();
    let beats = begin_upkeep(lasting, &live, &switch, workers);
    if serves != ServedClients::OfApplication {
        // An application tells its service manager itself whether it is alive.
        tasks.spawn_service(systemd::tend(tasks.clone(), Arc::clone(&beats)));
    }
    let shown = match serves.owner() {
        ConnectionOwner::Gateway => shown_listeners(&live, lasting),
        ConnectionOwner::Application => Vec::new(),
    };
    let reloader = source.map(|source| {
        let reloaded = ReloadTargets {
            lasting: Arc::clone(lasting),
            live: Arc::clone(&live),
            switch: Arc::clone(&switch),
        };
        let in_force = ConfigInForce { pin_monitor, digest, sections, text_digest };
        begin_reloads(source, reloaded, in_force)
    });
    let tester = begin_selftests(lasting, &live);
    let ops = ops_listener.as_ref().map(local);
    if let Some((listener, admission)) = ops_listener.zip(ops_door) {
        let ops = AdminApi {
            metrics: Arc::clone(&lasting.metrics),
            journal: Arc::clone(&lasting.journal),
            live: Arc::clone(&live),
            tasks: tasks.clone(),
            switch,
            reloader,
            tester,
            token,
            admission: Arc::new(admission),
            beats: Arc::clone(&beats),
        };
        tasks.spawn(admin_listener::serve(ops, listener));
    }
    let shares = shares(&listeners, workers)?;
    let http_sse = Arc::new(HttpSseServer::new(lasting.limits.sessions));
    let (serving, sessions, tasks_of) = (Arc::clone(&live), Arc::clone(&http_sse), tasks.clone());
    let threads = tasks.workers(workers, &beats, move |worker| {
        for (at, listener) in shares.get(worker).into_iter().flatten().enumerate() {
            // Each worker has its own, so that a request changes no count that all workers share.
            listener::begin(&McpService::new(&serving, &sessions, &tasks_of, at), listener);
        }
    });
    let threads = threads.map_err(StartError::Threads)?;
    tasks.spawn_service(watch(beats, Arc::clone(lasting)));
    let (lasting, deferred) = (Arc::clone(lasting), Mutex::new(deferred));
    Ok(RunningGateway { listeners: shown, ops, live, http_sse, lasting, threads, deferred })
}

/// Begins the background work that every gateway needs. Returns the heartbeats of the workers.
fn begin_upkeep(
    lasting: &ProcessState,
    live: &Arc<CurrentGeneration>,
    switch: &Arc<RevocationManager>,
    workers: usize,
) -> Arc<Heartbeats> {
    let tasks = &lasting.tasks;
    tasks.spawn_service(Arc::clone(&lasting.journal).run_background(tasks.clone()));
    tasks.spawn_service(Arc::clone(switch).tend());
    tasks.spawn_service(Arc::clone(&lasting.secrets).tend(tasks.clone()));
    let beats = Heartbeats::new(workers, Arc::clone(&lasting.clock));
    tasks.spawn_service(sweep(Arc::clone(live), tasks.clone()));
    beats
}

/// Begins to reload `source` when it changes.
fn begin_reloads(
    source: Arc<dyn SettingsSource>,
    reloaded: ReloadTargets,
    in_force: ConfigInForce,
) -> Arc<Reloader> {
    let tasks = reloaded.lasting.tasks.clone();
    let reloader = Arc::new(Reloader::new(source, reloaded, in_force));
    tasks.spawn_service(Arc::clone(&reloader).tend());
    reloader
}

/// Begins to run the self-test when it is due.
fn begin_selftests(lasting: &ProcessState, live: &Arc<CurrentGeneration>) -> Arc<SelftestRunner> {
    let (metrics, journal) = (Arc::clone(&lasting.metrics), Arc::clone(&lasting.journal));
    let tester =
        SelftestRunner::new(Arc::clone(live), journal, metrics, Arc::clone(&lasting.clock));
    let tester = Arc::new(tester);
    lasting.tasks.spawn_service(Arc::clone(&tester).tend(lasting.tasks.clone()));
    tester
}

/// The name of each listener, its address, and whether it uses TLS. Certificates are kept up to date from now on.
fn shown_listeners(
    live: &CurrentGeneration,
    lasting: &Arc<ProcessState>,
) -> Vec<(Arc<str>, SocketAddr, bool)> {
    let mut shown = Vec::new();
    for (admission, bound) in live.now().admissions.iter().zip(&lasting.bound) {
        shown.push((Arc::clone(&admission.name), bound.address, bound.acceptor.is_some()));
        if let Some(acceptor) = &bound.acceptor {
            let (acceptor, name) = (Arc::clone(acceptor), Arc::clone(&admission.name));
            lasting.tasks.spawn_service(renew(acceptor, name, Arc::clone(lasting)));
        }
    }
    shown
}

/// Logs when a worker stalls or recovers, and when files or threads are exhausted or available again.
async fn watch(beats: Arc<Heartbeats>, lasting: Arc<ProcessState>) {
    let mut turn = tokio::time::interval(WATCH);
    let (mut known, mut lacked, mut held_up) = (BTreeSet::new(), None, None);
    loop {
        tokio::select! {
            _ = turn.tick() => {}
            () = lasting.tasks.halting() => return,
        }
        let lack = heartbeat::lack();
        beats.note(lack.is_some());
        lasting.metrics.resources_lacking.store(u64::from(lack.is_some()), Ordering::Relaxed);
        match (lacked, lack) {
            (None, Some(lack)) => tracing::error!(
                event = "process.limit_reached",
                lack,
                "file descriptor or thread limit reached: new connections are refused; raise the limit, or \
                 find the program or user that exhausts it"
            ),
            (Some(_), None) => tracing::warn!(
                event = "process.limit_cleared",
                "file descriptors and threads are available again"
            ),
            (None, None) | (Some(_), Some(_)) => {}
        }
        lacked = lack;
        let stalled: BTreeSet<_> = beats.stalled().into_iter().map(|(worker, _)| worker).collect();
        lasting.metrics.workers_stalled.store(stalled.len() as u64, Ordering::Relaxed);
        for worker in stalled.difference(&known) {
            lasting.metrics.worker_stalls.add(1);
            tracing::error!(
                event = "worker.stalled",
                worker,
                "worker stalled: its connections wait, and liveness fails until it recovers; see \
                 docs/operations.md, \"Alive and ready\""
            );
        }
        for worker in known.difference(&stalled) {
            tracing::warn!(event = "worker.recovered", worker, "worker recovered");
        }
        known = stalled;
        held_up = log_stall(held_up, lasting.journal.stall());
    }
}

/// Logs when the audit log is held up and when it goes on; returns what holds it up now.
fn log_stall(before: Option<&'static str>, now: Option<&'static str>) -> Option<&'static str> {
    match (before, now) {
        (before, Some(what)) if before != now => tracing::error!(
            event = "audit.stalled",
            what,
            "the audit log is held up, and readiness fails until it is not"
        ),
        (Some(_), None) => {
            tracing::warn!(event = "audit.resumed", "the audit log is not held up any more");
        }
        _ => {}
    }
    now
}

/// Removes expired state at an interval.
async fn sweep(live: Arc<CurrentGeneration>, tasks: Tasks) {
    let mut turn = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            _ = turn.tick() => live.now().gateway.sweep(),
            () = tasks.halting() => return,
        }
    }
}

impl RunningGateway {
    /// Serves the client at standard input and output on the route `path`, or on the only route, until it closes its
    /// end. The client authenticates with the API key `key`, or is anonymous.
    ///
    /// # Errors
    /// If the route is ambiguous or unknown, or the client is not admitted.
    pub async fn serve_inside(
        &self,
        path: Option<&str>,
        key: Option<&Secret>,
    ) -> Result<(), StdioServerError> {
        let (live, tasks) = (Arc::clone(&self.live), self.lasting.tasks.clone());
        let console = StdioServer::open(live, tasks, path, key, Tenancy::Single).await?;
        let deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = deferred {
            self.lasting.begin(&work);
        }
        console.serve(stdin(), stdout()).await
    }

    /// The data path of the listener `name`, for an application that mounts it; `None` if the configuration has no such
    /// listener.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<McpService> {
        let at =
            self.live.now().admissions.iter().position(|admission| &*admission.name == name)?;
        Some(McpService::new(&self.live, &self.http_sse, &self.lasting.tasks, at))
    }

    /// Also serves `portcullis stdio` processes that use the configuration `config`; they find this gateway by the
    /// file that it creates beside the configuration. If it cannot create the file, such processes run a gateway of
    /// their own.
    pub fn take_attachments(&self, config: &Path) {
        let attachments = match AttachListener::open(config) {
            Ok(attachments) => attachments,
            Err(error) => {
                tracing::debug!(%error, "stdio clients cannot attach to this gateway");
                return;
            }
        };
        let (live, tasks) = (Arc::clone(&self.live), self.lasting.tasks.clone());
        self.lasting.tasks.spawn_service(attachments.serve(live, tasks));
    }

    /// Reports that it is not ready, and waits until load balancers have noticed.
    pub async fn wane(&self) {
        self.lasting.tasks.wane();
        tokio::time::sleep(self.lasting.limits.lame_duck_time).await;
    }

    /// Starts the watchdog, which ends the process in time even if a computation does not end.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn watch_over(&self, begins: StopTrigger) -> Result<Watchdog, StartError> {
        let limits = &self.lasting.limits;
        let within = limits.lame_duck_time + limits.drain_timeout + END;
        let watchdog = Watchdog::start(Arc::clone(&self.lasting.journal), begins, within);
        watchdog.map_err(StartError::Threads)
    }

    /// Stops: closes the listeners, drains what is in flight, and writes the last record. Services that an application
    /// has mounted answer with 503 from now on.
    pub async fn stop(self) -> StopOutcome {
        listener::drain(&self.lasting.tasks, self.lasting.limits.drain_timeout).await;
        let stopped = joined(self.threads, JOIN_TIMEOUT).await;
        self.lasting.journal.stop().await;
        self.lasting.telemetry.stop().await;
        stopped
    }
}

/// How completely the gateway has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum StopOutcome {
    /// All work has ended.
    Whole,
    /// A worker is still blocked; it ends with the process.
    Abandoned,
}

/// Waits for the workers to end, which is immediate unless one is blocked.
async fn joined(threads: Vec<JoinHandle<()>>, within: Duration) -> StopOutcome {
    let ended = async {
        while !threads.iter().all(JoinHandle::is_finished) {
            tokio::time::sleep(JOIN_INTERVAL).await;
        }
    };
    let mut stopped = StopOutcome::Whole;
    if tokio::time::timeout(within, ended).await.is_err() {
        tracing::error!(
            event = "worker.abandoned",
            "a worker did not stop in time; its work is abandoned"
        );
        stopped = StopOutcome::Abandoned;
    }
    for thread in threads.into_iter().filter(JoinHandle::is_finished) {
        if thread.join().is_err() {
            tracing::error!(event = "worker.panicked", "a worker panicked");
        }
    }
    stopped
}

/// Loads new certificates for a listener when its files change.
async fn renew(acceptor: Arc<Acceptor>, name: Arc<str>, lasting: Arc<ProcessState>) {
    let mut turn = tokio::time::interval(tls::WATCH);
    let (aside, mut stalled) = (FileTasks::default(), false);
    loop {
        tokio::select! {
            _ = turn.tick() => {}
            () = lasting.tasks.halting() => return,
        }
        let (files, now) = (Arc::clone(&acceptor), lasting.clock.now());
        let renewed = aside.run(file::CHECK_TIMEOUT, move || files.renew(now)).await;
        let late = renewed.is_err();
        match renewed {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => tracing::info!(
                event = "tls.certificate_renewed", listener = %name,
                "new certificate in use"
            ),
            Ok(Err(error)) => {
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::error!(
                    event = "tls.certificate_rejected", listener = %name, %error,
                    "new certificate rejected; keeping the previous one"
                );
            }
            Err(error) if !stalled => {
                tracing::error!(
                    event = "tls.certificate_unreadable", listener = %name, %error,
                    "the certificate files cannot be examined; keeping the previous certificate"
                );
            }
            Err(_) => {}
        }
        stalled = late;
        lasting.metrics.certificate(&name, acceptor.ends());
    }
}

/// A handle of every listener for every worker: all workers accept from one queue of connections.
type WorkerListeners = Arc<Vec<Vec<TcpListener>>>;

fn shares(listeners: &[TcpListener], workers: usize) -> Result<WorkerListeners, StartError> {
    let share = |listener: &TcpListener| {
        let address = local(listener);
        listener.try_clone().map_err(|cause| StartError::Bind {
            address,
            key: "`listeners[].address`".into(),
            cause,
        })
    };
    let shares = (0..workers).map(|_| listeners.iter().map(share).collect());
    shares.collect::<Result<_, _>>().map(Arc::new)
}

/// The configuration that runs if no file is named: its file name and text.
#[must_use]
pub fn quickstart() -> (PathBuf, &'static str) {
    (PathBuf::from("quickstart.yaml"), include_str!("../../../config/quickstart.yaml"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::{StopOutcome, joined};

    #[tokio::test]
    async fn a_worker_that_is_held_does_not_hold_the_stop() {
        let (end, wait) = mpsc::channel::<()>();
        let quick = thread::spawn(|| {});
        let held = thread::spawn(move || wait.recv().unwrap_or_default());
        let stopped = joined(vec![quick, held], Duration::from_millis(1)).await;
        assert_eq!(stopped, StopOutcome::Abandoned);
        drop(end);
        let quick = thread::spawn(|| {});
        assert_eq!(joined(vec![quick], Duration::from_secs(20)).await, StopOutcome::Whole);
    }
}
