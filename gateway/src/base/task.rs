//! The gateway's tasks and worker threads, and the order in which they stop.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::base::heartbeat::Heartbeats;
use crate::base::offload::{self, Offload};

/// Maximum time for services to end after the work has ended.
pub const SERVICE_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many tasks a worker polls before it looks for new input. While peers keep it busy a small request waits for as many
/// polls, each of which reads up to 16 KiB.
const EVENT_INTERVAL: u32 = 8;

/// All tasks of the gateway; none outlives it. Work is done for clients and is given time to drain; services, such as
/// the programs of stdio upstream servers, are stopped after the work has ended.
#[derive(Clone, Default)]
pub struct Tasks {
    work: TaskTracker,
    service: TaskTracker,
    stopping: CancellationToken,
    /// The same as `stopping` for the whole gateway, as a flag that is cheap to read in every loop.
    stopped: Arc<AtomicBool>,
    /// The gateway will stop soon.
    waning: Arc<AtomicBool>,
    halting: CancellationToken,
    /// The programs of this generation must end, even if they are in use.
    dismissed: CancellationToken,
    halted: CancellationToken,
    /// The threads for computations.
    offload: Arc<Offload>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

impl Tasks {
    /// Spawns work for a client.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.work.spawn(task);
    }

    /// Counts as work for a client until it is dropped, for work that another server than the gateway runs.
    pub fn counted(&self) -> TaskTrackerToken {
        self.work.token()
    }

    /// The threads for computations.
    #[must_use]
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// Spawns a service, which is stopped after the work.
    pub fn spawn_service(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.service.spawn(task);
    }

    /// Makes the tasks of one configuration generation: they can be stopped alone, and stop with the gateway.
    #[must_use]
    pub fn generation(&self) -> Self {
        let (stopping, halting) = (self.stopping.child_token(), self.halting.child_token());
        Self { stopping, halting, dismissed: CancellationToken::new(), ..self.clone() }
    }

    /// Tells the programs of this generation to end, even if they are in use; no further program is started.
    pub fn dismiss(&self) {
        self.dismissed.cancel();
    }

    /// Whether no program may be started in this generation.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.is_cancelled()
    }

    /// Resolves when the programs of this generation must end, even if they are in use.
    pub async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }

    /// Retires this generation because another takes over: tasks that would never end by themselves must end.
    pub fn retire(&self) {
        self.stopping.cancel();
    }

    /// Whether no new work may start here, because another generation has taken over or the gateway stops.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Stops the services of this generation when the guard is dropped.
    #[must_use]
    pub fn guard(&self) -> DropGuard {
        self.halting.clone().drop_guard()
    }

    /// Resolves when no new work may start.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Resolves when the work has ended, or its time is over.
    pub async fn halting(&self) {
        self.halting.cancelled().await;
    }

    /// Whether the gateway stops, so that no new work may start.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Announces that the gateway will stop soon: readiness reports it, and everything else goes on.
    pub fn wane(&self) {
        self.waning.store(true, Ordering::Release);
    }

    /// Whether the gateway stops, or will soon.
    #[must_use]
    pub fn is_waning(&self) -> bool {
        self.waning.load(Ordering::Acquire) || self.is_stopping()
    }

    /// Stops everything: the work within `at_most`, then the services. Returns whether all of it ended in time.
    pub async fn stop(&self, at_most: Duration) -> bool {
        self.stopped.store(true, Ordering::Release);
        self.stopping.cancel();
        self.work.close();
        let done = tokio::time::timeout(at_most, self.work.wait()).await.is_ok();
        self.halting.cancel();
        self.service.close();
        let ended = tokio::time::timeout(SERVICE_STOP_TIMEOUT, self.service.wait()).await;
        self.halted.cancel();
        done && ended.is_ok()
    }

    /// Starts the worker threads that serve clients, each with its own scheduler and its own slot in `beats`.
    ///
    /// A request stays on the thread that accepted its connection, and so do the connections to upstream servers it
    /// uses: no step has to wake another thread. `docs/performance.md` has the figures. `begin` starts the work of a
    /// worker; it is called once on each.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn workers<B>(
        &self,
        count: usize,
        beats: &Arc<Heartbeats>,
        begin: B,
    ) -> io::Result<Vec<JoinHandle<()>>>
    where
        B: Fn(usize) + Clone + Send + 'static,
    {
        let mut threads = Vec::new();
        for worker in 0..count {
            let (begin, halted) = (begin.clone(), self.halted.clone());
            let beats = Arc::clone(beats);
            // This runs on the runtime's blocking threads, which do long work such as reading a long message.
            let runtime = Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .on_thread_start(offload::lower_priority)
                .build()?;
            let name = format!("worker-{worker}");
            threads.push(thread::Builder::new().name(name).spawn(move || {
                WORKER.set(worker);
                runtime.block_on(async {
                    begin(worker);
                    tokio::select! {
                        () = beats.keep(worker) => {}
                        () = halted.cancelled() => {}
                    }
                });
            })?);
        }
        Ok(threads)
    }
}

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Bytes that a worker copies in one step at most. More is copied on a thread of its own, because other clients of the
/// worker wait meanwhile.
const LONG_COPY: usize = 256 * 1024;

/// Runs `copy`, which copies `bytes` bytes, beside the worker if that takes long. `None` if the process ends meanwhile.
pub async fn copied<T: Send + 'static>(
    bytes: usize,
    copy: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match bytes < LONG_COPY {
        true => Some(copy()),
        false => tokio::task::spawn_blocking(copy).await.ok(),
    }
}

/// The index of this thread for per-thread data: each worker has its own, and all other threads share the last. There
/// are [`places`] of them.
#[must_use]
pub fn place() -> usize {
    WORKER.get().min(parallelism())
}

/// The number of different values that [`place`] returns.
#[must_use]
pub fn places() -> usize {
    parallelism() + 1
}

/// The number of workers to start.
#[must_use]
pub fn parallelism() -> usize {
    static COUNT: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *COUNT
}
