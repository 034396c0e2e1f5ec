//! Whether the threads that serve clients are at work, or one of them is held by something that does not end.
//!
//! Each worker's runtime notes the time several times a second. A worker that computes or blocks cannot, and
//! neither can it serve anybody: the operator's listener, which runs on another thread, compares what was
//! noted with the clock, and liveness turns red.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::clock::Clock;

/// How often a worker notes the time.
const BEAT: Duration = Duration::from_millis(250);
/// A worker that has noted nothing for so long has stalled.
pub const STALL: Duration = Duration::from_secs(2);

/// When each worker was last at work.
#[derive(Debug)]
pub struct Heartbeats {
    clock: Arc<dyn Clock>,
    begin: Instant,
    /// Milliseconds since `begin`.
    beats: Vec<AtomicU64>,
}

impl Heartbeats {
    /// `workers` that are at work now.
    #[must_use]
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let begin = clock.instant();
        let beats = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { clock, begin, beats })
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

    use super::{Heartbeats, STALL};
    use crate::clock::{Clock, System};

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
