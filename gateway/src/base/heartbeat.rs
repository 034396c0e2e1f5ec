//! Whether the threads that serve clients are at work, or one of them is held by something that does not end.
//!
//! Each worker's runtime notes the time several times a second. A worker that computes or blocks cannot, and
//! neither can it serve anybody: the operator's listener, which runs on another thread, compares what was
//! noted with the clock, and liveness turns red.
//!
//! A process that can open no file and start no thread serves nobody new either, and its workers go on all the
//! same. So it is tried whether it still can ([`lack`]).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::base::clock::Clock;

/// How often a worker notes the time.
const BEAT: Duration = Duration::from_millis(250);
/// A worker that has noted nothing for so long has stalled.
pub const STALL: Duration = Duration::from_secs(2);

/// A process that has lacked files or threads for so long is not alive. It is longer than a burst of
/// connections, which ends by itself, and after which a new process would be no better.
pub const LACK: Duration = Duration::from_secs(30);
/// The stack of a thread that only ends.
const STACK: usize = 64 * 1024;

/// What this process can have no more of: files or threads. Nothing where it can have both, or where they cannot
/// be had for a reason other than a limit.
#[must_use]
pub fn lack() -> Option<&'static str> {
    let is_limited = |error: &io::Error| {
        let limits = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
        error.raw_os_error().is_some_and(|code| limits.contains(&code))
    };
    if File::open("/dev/null").is_err_and(|error| is_limited(&error)) {
        return Some("files");
    }
    let thread = thread::Builder::new().name("probe".to_owned()).stack_size(STACK).spawn(|| {});
    // It ends by itself: waiting for it would hold who asks while the machine is busy.
    thread.is_err_and(|error| is_limited(&error)).then_some("threads")
}

/// When each worker was last at work.
#[derive(Debug)]
pub struct Heartbeats {
    clock: Arc<dyn Clock>,
    begin: Instant,
    /// Milliseconds since `begin`.
    beats: Vec<AtomicU64>,
    /// Since when files or threads have been lacking, in milliseconds since `begin` and one more; or 0.
    lacking: AtomicU64,
}

impl Heartbeats {
    /// `workers` that are at work now.
    #[must_use]
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let begin = clock.instant();
        let beats = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { clock, begin, beats, lacking: AtomicU64::new(0) })
    }

    /// Notes the time for a worker, for as long as its runtime goes on.
    pub async fn keep(&self, worker: usize) {
        let mut turn = interval(BEAT);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            self.beat(worker);
        }
    }

    fn beat(&self, worker: usize) {
        if let Some(beat) = self.beats.get(worker) {
            beat.store(self.now(), Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        let since = self.clock.instant().saturating_duration_since(self.begin);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Notes whether [`lack`] has found something. Called from one place.
    pub fn note(&self, lacking: bool) {
        if !lacking {
            self.lacking.store(0, Ordering::Relaxed);
        } else if self.lacking.load(Ordering::Relaxed) == 0 {
            self.lacking.store(self.now().saturating_add(1), Ordering::Relaxed);
        }
    }

    /// For how long files or threads have been lacking, if they are.
    #[must_use]
    pub fn lacking(&self) -> Option<Duration> {
        match self.lacking.load(Ordering::Relaxed) {
            0 => None,
            since => {
                let now = self.now().saturating_add(1);
                Some(Duration::from_millis(now.saturating_sub(since)))
            }
        }
    }

    /// The same, if it has been for so long that only a new process helps.
    #[must_use]
    pub fn starved(&self) -> Option<Duration> {
        self.lacking().filter(|since| *since >= LACK)
    }

    /// The workers that have stalled, and for how long each.
    #[must_use]
    pub fn stalled(&self) -> Vec<(usize, Duration)> {
        let now = self.now();
        let since = |beat: &AtomicU64| {
            Duration::from_millis(now.saturating_sub(beat.load(Ordering::Relaxed)))
        };
        let all = self.beats.iter().map(since).enumerate();
        all.filter(|(_, since)| *since >= STALL).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant, SystemTime};

    use super::{Heartbeats, LACK, STALL, lack};
    use crate::base::clock::{Clock, System};

    /// A clock that is moved by hand.
    #[derive(Debug)]
    struct Hand(Mutex<Instant>);

    impl Hand {
        fn forward(&self, by: Duration) {
            *self.0.lock().unwrap() += by;
        }
    }

    impl Clock for Hand {
        fn now(&self) -> SystemTime {
            System.now()
        }

        fn instant(&self) -> Instant {
            *self.0.lock().unwrap()
        }
    }

    #[test]
    fn a_worker_that_notes_nothing_for_two_seconds_has_stalled() {
        let clock = Arc::new(Hand(Mutex::new(System.instant())));
        let beats = Heartbeats::new(2, Arc::<Hand>::clone(&clock));
        let moment = Duration::from_millis(1);
        clock.forward(STALL - moment);
        assert!(beats.stalled().is_empty());
        beats.beat(0);
        clock.forward(moment);
        assert_eq!(beats.stalled(), [(1, STALL)]);
        clock.forward(STALL);
        assert_eq!(beats.stalled(), [(0, STALL + moment), (1, STALL * 2)]);
        beats.beat(0);
        beats.beat(1);
        assert!(beats.stalled().is_empty());
    }

    #[test]
    fn a_process_that_lacks_files_or_threads_for_long_is_starved_until_it_has_them_again() {
        assert_eq!(lack(), None, "this process has both");
        let clock = Arc::new(Hand(Mutex::new(System.instant())));
        let beats = Heartbeats::new(1, Arc::<Hand>::clone(&clock));
        let moment = Duration::from_millis(1);
        beats.note(false);
        assert_eq!(beats.lacking(), None);
        beats.note(true);
        assert_eq!(beats.lacking(), Some(Duration::ZERO));
        clock.forward(LACK - moment);
        beats.note(true);
        assert_eq!((beats.lacking(), beats.starved()), (Some(LACK - moment), None));
        clock.forward(moment);
        assert_eq!(beats.starved(), Some(LACK));
        beats.note(false);
        assert_eq!((beats.lacking(), beats.starved()), (None, None));
        beats.note(true);
        assert_eq!(beats.starved(), None, "it counts from the beginning again");
    }

    #[test]
    fn a_runtime_that_is_held_notes_nothing_and_goes_on_afterwards() {
        let clock = Arc::new(Hand(Mutex::new(System.instant())));
        let beats = Heartbeats::new(1, Arc::<Hand>::clone(&clock));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let held = async {
            clock.forward(STALL);
            // Nothing else runs here between the two lines.
            assert_eq!(beats.stalled(), [(0, STALL)]);
            while !beats.stalled().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = beats.keep(0) => {}
                () = held => {}
            }
        });
        assert!(beats.stalled().is_empty());
    }
}
