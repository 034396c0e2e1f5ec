//! Runs computations beside the threads that serve clients: inspecting long messages, reading long lists.
//!
//! A peer chooses what is inspected, so the cost of inspection must not delay other callers. There are few such
//! threads, they run at a lower priority than the workers, each holder has a bounded share of the bytes they work on,
//! and holders take turns. Messages of each [`SizeClass`] have threads of their own, which pass the processor to each other:
//! a short message does not wait for the end of the inspection of a long one. A computation that no caller waits for any
//! more ends at the next unit of work it spends ([`WorkBudget`]). The process does not wait for these threads when it ends.

mod processors;
mod turns;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use policy_core::base::work::{CancelFlag, WorkBudget, WorkLimits};
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::processors::{Processors, pass_on};
use self::turns::FairQueue;

use crate::base::share::{ShareError, Shares};

/// Maximum number of bytes of messages that are being computed or queued.
pub const BYTES: usize = 256 * 1024 * 1024;
/// Maximum number of those bytes that one holder may have.
pub const BYTES_OF_ONE: usize = BYTES / 4;
/// Maximum number of queued messages of each size class.
const MAX_QUEUED: usize = 4096;
/// Maximum time to wait for a result, including the time in the queue.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much lower the priority of these threads is than that of the workers (`nice`).
const NICE: i32 = 10;

/// The reason why a computation has no result.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum OffloadError {
    /// The holder's share of bytes is used up.
    #[error("too many bytes are being inspected")]
    Share(#[source] ShareError),
    /// The queue or the computation took too long.
    #[error("the inspection did not end within {} seconds", PATIENCE.as_secs())]
    Late,
    /// The queue is full, or no thread could be started.
    #[error("too many messages wait to be inspected")]
    Full,
    /// The computation ended in a panic.
    #[error("the inspection failed")]
    Failed,
}

type Job = Box<dyn FnOnce() + Send>;
type JobQueue = Arc<FairQueue<OffloadHolder, Job>>;

/// Classes of messages by their length, which bounds the cost of inspecting them. Messages wait for those of their own
/// class alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeClass {
    /// Up to [`Self::SHORT`] bytes.
    Short,
    /// Up to [`Self::MEDIUM`] bytes.
    Medium,
    /// Those that are longer.
    Long,
}

impl SizeClass {
    /// Length of a short message, which takes some ten milliseconds of a processor at most.
    const SHORT: usize = 32 * 1024;
    /// Length of a medium message, which takes some tenths of a second at most.
    const MEDIUM: usize = 512 * 1024;

    const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];

    const fn of(bytes: usize) -> Self {
        if bytes <= Self::SHORT {
            Self::Short
        } else if bytes <= Self::MEDIUM {
            Self::Medium
        } else {
            Self::Long
        }
    }
}

/// The queues of the size classes.
struct JobQueues([JobQueue; SizeClass::ALL.len()]);

impl JobQueues {
    fn of(&self, class: SizeClass) -> &JobQueue {
        let [short, medium, long] = &self.0;
        match class {
            SizeClass::Short => short,
            SizeClass::Medium => medium,
            SizeClass::Long => long,
        }
    }
}

/// The holder that a computation is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OffloadHolder {
    /// A caller, by the id of its principal.
    Caller(Box<str>),
    /// An upstream server, by its name: for definitions that it offers to all callers.
    Server(Box<str>),
}

/// Counters of the messages that are offloaded.
#[derive(Debug, Default)]
pub struct OffloadCounts {
    offloaded: AtomicU64,
    refused: AtomicU64,
    in_flight: AtomicU64,
}

impl OffloadCounts {
    /// Number of messages that were queued.
    #[must_use]
    pub fn offloaded(&self) -> u64 {
        self.offloaded.load(Ordering::Relaxed)
    }

    /// Number of messages that were refused for lack of room or of share, or because they took too long.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Number of messages that are being computed or queued now.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// Counts one message as in flight until it is dropped.
struct InFlightJob(Arc<OffloadCounts>);

impl InFlightJob {
    fn begin(counts: &Arc<OffloadCounts>) -> Self {
        counts.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for InFlightJob {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The pool of threads, started when the first message needs it.
pub struct Offload {
    queues: OnceLock<Option<JobQueues>>,
    shares: Arc<Shares<OffloadHolder>>,
    counts: Arc<OffloadCounts>,
}

impl Default for Offload {
    fn default() -> Self {
        let shares = Shares::new(BYTES, BYTES_OF_ONE);
        Self { queues: OnceLock::new(), shares, counts: Arc::default() }
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offload").field("bytes", &self.shares.taken()).finish_non_exhaustive()
    }
}

impl Offload {
    /// The counters of this pool.
    #[must_use]
    pub fn counts(&self) -> Arc<OffloadCounts> {
        Arc::clone(&self.counts)
    }

    /// Computes `work` for a message of `bytes` bytes. It may spend at most the units that a message of this length
    /// may cost, and at most `most`. Dropping the future cancels it.
    ///
    /// # Errors
    /// If the share of `cause` is used up, the queue is full, the computation takes too long, or it panics.
    pub async fn run<T, F>(
        &self,
        cause: OffloadHolder,
        bytes: usize,
        most: impl Into<WorkLimits>,
        work: F,
    ) -> Result<T, OffloadError>
    where
        T: Send + 'static,
        F: FnOnce(&WorkBudget) -> T + Send + 'static,
    {
        let most = most.into();
        let refused = |error: OffloadError| {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            error
        };
        let share = self.shares.take(&cause, bytes);
        let share = share.map_err(|none| refused(OffloadError::Share(none)))?;
        let queues = self.queues.get_or_init(start).as_ref();
        let queues = queues.ok_or_else(|| refused(OffloadError::Full))?;
        let (done, result) = oneshot::channel();
        let waiting = CancelOnDrop(CancelFlag::default());
        let cancel = waiting.0.clone();
        let in_flight = InFlightJob::begin(&self.counts);
        let job = move || {
            // The bytes stay charged while the thread computes, even if the caller no longer waits.
            let (_share, _in_flight) = (share, in_flight);
            if cancel.is_cancelled() {
                return;
            }
            let budget = WorkBudget::of(bytes, most).with_cancel(cancel).with_pause(pass_on);
            // An error means that the caller no longer waits for the result.
            drop(done.send(work(&budget)));
        };
        if !queues.of(SizeClass::of(bytes)).push(cause, Box::new(job)) {
            return Err(refused(OffloadError::Full));
        }
        self.counts.offloaded.fetch_add(1, Ordering::Relaxed);
        let computed = timeout(PATIENCE, result).await;
        drop(waiting);
        let computed = computed.map_err(|_elapsed| refused(OffloadError::Late))?;
        computed.map_err(|_ended| OffloadError::Failed)
    }
}

/// Cancels the computation on drop.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Starts threads for each size class; `None` if one of the classes would have none. Half as many of them compute at a
/// time as there are processors.
fn start() -> Option<JobQueues> {
    let count = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
    let processors = Arc::new(Processors::new(count));
    let queues = JobQueues(SizeClass::ALL.map(|_| Arc::new(FairQueue::new(MAX_QUEUED))));
    let is_served = |class| {
        // Not `any`, which would start the first one alone.
        let started = (0..count).filter(|n| start_one(class, *n, &queues, &processors));
        started.count() > 0
    };
    SizeClass::ALL.into_iter().all(is_served).then_some(queues)
}

/// Starts a thread for messages of a size class; returns whether that was possible.
fn start_one(
    class: SizeClass,
    number: usize,
    queues: &JobQueues,
    processors: &Arc<Processors>,
) -> bool {
    let (queue, processors) = (Arc::clone(queues.of(class)), Arc::clone(processors));
    let name = match class {
        SizeClass::Short => format!("inspect-s{number}"),
        SizeClass::Medium => format!("inspect-m{number}"),
        SizeClass::Long => format!("inspect-l{number}"),
    };
    let thread = thread::Builder::new().name(name).spawn(move || serve(&queue, &processors));
    if let Err(error) = &thread {
        tracing::error!(
            event = "inspection.thread_failed", %error,
            "an inspection thread could not be started"
        );
    }
    thread.is_ok()
}

/// Lowers the priority of the current thread below that of the workers.
pub fn lower_priority() {
    // Linux applies this to the current thread alone. If it fails, the threads compete at equal priority.
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::warn!(
            event = "inspection.priority_failed", %error,
            "the priority of an inspection thread could not be lowered"
        );
    }
}

fn serve(queue: &FairQueue<OffloadHolder, Job>, processors: &Arc<Processors>) -> ! {
    lower_priority();
    loop {
        let job = queue.pop();
        let _processor = processors.take();
        // A panic drops the sender of the result, and the waiting caller then withholds the message.
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!(
                event = "inspection.panicked",
                "an inspection panicked; the message was withheld"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;
    use policy_core::base::work::{CancelFlag, USUAL_MOST, WorkLimits};

    use super::{BYTES_OF_ONE, Offload, OffloadError, OffloadHolder};

    fn caller(name: &str) -> OffloadHolder {
        OffloadHolder::Caller(name.into())
    }

    #[tokio::test]
    async fn what_is_computed_comes_back_and_a_panic_withholds_only_its_own_message() {
        let offload = Offload::default();
        let failed: Result<(), _> =
            offload.run(caller("ana"), 1, USUAL_MOST, |_| panic!("as planned")).await;
        assert!(matches!(failed, Err(OffloadError::Failed)));
        let spent = offload.run(caller("ana"), 1, USUAL_MOST, |budget| budget.spend(1)).await;
        assert!(spent.is_ok_and(|enough| enough));
    }

    #[tokio::test]
    async fn one_caller_cannot_take_the_bytes_of_another() {
        let offload = Offload::default();
        let (begun, started) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let long = offload.run(caller("ana"), BYTES_OF_ONE, USUAL_MOST, move |_| {
            begun.send(()).unwrap_or_default();
            ended.recv().unwrap_or_default();
        });
        let others = async {
            started.await.unwrap();
            let more = offload.run(caller("ana"), 1, USUAL_MOST, |_| ()).await;
            assert!(matches!(more, Err(OffloadError::Share(_))));
            let counts = offload.counts();
            assert_eq!((counts.offloaded(), counts.refused(), counts.in_flight()), (1, 1, 1));
            drop(end);
        };
        let (long, ()) = tokio::join!(long, others);
        assert!(long.is_ok());
        assert!(offload.run(caller("bob"), 1, USUAL_MOST, |_| ()).await.is_ok());
    }

    #[tokio::test]
    async fn a_short_message_does_not_wait_for_the_end_of_a_long_one() {
        let offload = Offload::default();
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let mut long = FuturesUnordered::new();
        let done = CancelFlag::default();
        let endless = WorkLimits { most: u64::MAX, each_byte: u64::MAX };
        for n in 0..count {
            let done = done.clone();
            long.push(offload.run(caller(&n.to_string()), 1 << 20, endless, move |budget| {
                while !done.is_cancelled() && budget.spend(1 << 12) {}
            }));
        }
        for bytes in [1, 1 << 16] {
            tokio::select! {
                biased;
                _never = long.next() => panic!("it computes until it is told to end"),
                short = offload.run(caller("bob"), bytes, USUAL_MOST, |_| ()) => short.unwrap(),
            }
        }
        done.cancel();
        while let Some(ended) = long.next().await {
            ended.unwrap();
        }
    }

    #[tokio::test]
    async fn what_nobody_waits_for_ends() {
        let offload = Offload::default();
        let (begun, started) = tokio::sync::oneshot::channel();
        let (end, ended) = tokio::sync::oneshot::channel();
        let mut work = Box::pin(offload.run(caller("ana"), 1, u64::MAX, move |budget| {
            begun.send(()).unwrap_or_default();
            while budget.spend(0) {}
            end.send(()).unwrap_or_default();
        }));
        tokio::select! {
            _never = &mut work => panic!("it computes until it is cancelled"),
            _begun = started => {}
        }
        drop(work);
        ended.await.unwrap();
    }
}
