//! Tasks that somebody waits for.

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

use crate::base::heartbeat::Heartbeats;
use crate::base::offload::{self, Offload};

/// How long what served the work may take to end after the work has.
pub const LAST: Duration = Duration::from_secs(5);

/// Every task of the gateway: none outlives it. Work is done for clients and is given time to end;
/// what serves the work, such as a program behind the gateway, is stopped when the work has ended.
#[derive(Clone, Default)]
pub struct Tasks {
    work: TaskTracker,
    service: TaskTracker,
    stopping: CancellationToken,
    /// The same as a flag, for those who look at every turn.
    stopped: Arc<AtomicBool>,
    /// It will stop soon.
    waning: Arc<AtomicBool>,
    halting: CancellationToken,
    /// The programs behind the gateway are to end, whatever they are used for.
    dismissed: CancellationToken,
    halted: CancellationToken,
    /// The threads that compute beside those that serve.
    offload: Arc<Offload>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("work", &self.work.len()).finish_non_exhaustive()
    }
}

impl Tasks {
    /// Runs work beside everything else.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.work.spawn(task);
    }

    /// The threads that compute beside those that serve clients.
    #[must_use]
    pub fn offload(&self) -> &Offload {
        &self.offload
    }

    /// Runs what serves the work.
    pub fn spawn_service(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.service.spawn(task);
    }

    /// The tasks of one configuration: they can be ended alone, and end with these.
    #[must_use]
    pub fn generation(&self) -> Self {
        let (stopping, halting) = (self.stopping.child_token(), self.halting.child_token());
        Self { stopping, halting, dismissed: CancellationToken::new(), ..self.clone() }
    }

    /// The programs behind this configuration are to end, also those that are in use; no other is started.
    pub fn dismiss(&self) {
        self.dismissed.cancel();
    }

    /// Whether no program is to be started here.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.dismissed.is_cancelled()
    }

    /// Resolves when programs are to end, also those that are in use.
    pub async fn dismissed(&self) {
        self.dismissed.cancelled().await;
    }

    /// Another configuration takes over: what would never end by itself is to end.
    pub fn retire(&self) {
        self.stopping.cancel();
    }

    /// Whether no new work is to be begun here: another configuration has taken over, or it stops.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// What serves the work ends when this is dropped.
    #[must_use]
    pub fn guard(&self) -> DropGuard {
        self.halting.clone().drop_guard()
    }

    /// Resolves when no new work is to be begun.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Resolves when the work has ended, or its time has.
    pub async fn halting(&self) {
        self.halting.cancelled().await;
    }

    /// Whether no new work is to be begun.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// It will stop soon: whoever asks is told, and everything goes on.
    pub fn wane(&self) {
        self.waning.store(true, Ordering::Release);
    }

    /// Whether it stops, or will soon.
    #[must_use]
    pub fn is_waning(&self) -> bool {
        self.waning.load(Ordering::Acquire) || self.is_stopping()
    }

    /// Ends it all: the work within `at_most`, then what served it. Says whether the work was done.
    pub async fn stop(&self, at_most: Duration) -> bool {
        self.stopped.store(true, Ordering::Release);
        self.stopping.cancel();
        self.work.close();
        let done = tokio::time::timeout(at_most, self.work.wait()).await.is_ok();
        self.halting.cancel();
        self.service.close();
        let ended = tokio::time::timeout(LAST, self.service.wait()).await;
        self.halted.cancel();
        done && ended.is_ok()
    }

    /// Starts the threads that serve clients, each with a scheduler of its own, and notes with `beats` that
    /// they go on.
    ///
    /// A request stays on the thread that accepted its connection, and so do the connections to
    /// servers it uses: nothing on its way has to wake another thread. `docs/performance.md` has
    /// the figures. `begin` starts what a worker does; it is called once on each.
    ///
    /// # Errors
    /// When there can be no more threads.
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
            // These are the threads for what blocks or takes long, such as reading a long message.
            let runtime = Builder::new_current_thread()
                .enable_all()
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

/// The place of this thread among those that keep things apart: each worker has its own, and all
/// that are none share the last. There are [`places`].
#[must_use]
pub fn place() -> usize {
    WORKER.get().min(parallelism())
}

/// How many different answers [`place`] gives.
#[must_use]
pub fn places() -> usize {
    parallelism() + 1
}

/// How many workers there should be.
#[must_use]
pub fn parallelism() -> usize {
    static COUNT: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *COUNT
}
