//! Detects worker threads that are blocked.
//!
//! Each worker's runtime notes the time several times a second. A worker that computes or blocks cannot do so, nor
//! can it serve clients: the operator's listener, which runs on another thread, compares the noted times with the
//! clock and fails the liveness probe.
//!
//! A process that can open no file and start no thread cannot serve new clients either, although its workers still
//! run, so that is probed as well ([`lack`]).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::base::clock::Clock;

/// Interval at which a worker notes the time.
const BEAT: Duration = Duration::from_millis(250);
/// Time without a note after which a worker counts as stalled.
pub const STALL: Duration = Duration::from_secs(2);

/// Time of lacking files or threads after which liveness fails. It is longer than a burst of connections, which ends
/// by itself and which a new process would not handle better.
pub const LACK: Duration = Duration::from_secs(30);
/// Stack size of the probe thread, in bytes.
const STACK: usize = 64 * 1024;

/// Probes whether this process has reached its limit of files or threads, and names which. Returns `None` if both are
/// available, or fail for a reason other than a limit.
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
    // The thread ends by itself; joining it would block the caller while the machine is busy.
    thread.is_err_and(|error| is_limited(&error)).then_some("threads")
}

/// The last time each worker noted, and since when files or threads are lacking.
#[derive(Debug)]
pub struct Heartbeats {
    clock: Arc<dyn Clock>,
    begin: Instant,
    /// The last note of each worker, in milliseconds since `begin`.
    beats: Vec<AtomicU64>,
    /// Since when files or threads have been lacking, in milliseconds since `begin` plus one; 0 if they are not.
    lacking: AtomicU64,
}

impl Heartbeats {
    /// Starts with `workers` workers that count as running now.
    #[must_use]
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let begin = clock.instant();
        let beats = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { clock, begin, beats, lacking: AtomicU64::new(0) })
    }

    /// Notes the time for a worker, forever: run it on that worker's runtime.
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

    /// Stores whether [`lack`] has found something. Must be called by one task only.
    pub fn note(&self, lacking: bool) {
        if !lacking {
            self.lacking.store(0, Ordering::Relaxed);
        } else if self.lacking.load(Ordering::Relaxed) == 0 {
            self.lacking.store(self.now().saturating_add(1), Ordering::Relaxed);
        }
    }

    /// For how long files or threads have been lacking; `None` if they are not.
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

    /// Like [`Self::lacking`], but only if it has lasted for [`LACK`], so that only a restart helps.
    #[must_use]
    pub fn starved(&self) -> Option<Duration> {
        self.lacking().filter(|since| *since >= LACK)
    }

    /// The stalled workers, each with the time since its last note.
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
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Heartbeats, LACK, STALL, lack};
    use crate::base::clock::HandClock;

    #[test]
    fn a_worker_that_notes_nothing_for_two_seconds_has_stalled() {
        let clock = HandClock::new();
        let beats = Heartbeats::new(2, Arc::<HandClock>::clone(&clock));
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
        let clock = HandClock::new();
        let beats = Heartbeats::new(1, Arc::<HandClock>::clone(&clock));
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
        let clock = HandClock::new();
        let beats = Heartbeats::new(1, Arc::<HandClock>::clone(&clock));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let held = async {
            clock.forward(STALL);
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
