//! A rate limit for log lines that a peer can cause, with a count of those suppressed.
//!
//! The log is for the operator. A caller without a credential, a server that sends unsolicited messages and a program
//! that writes all day could otherwise fill the disk and hide what matters. Nothing is dropped silently: the next
//! line that is written says how many were suppressed before it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::gcra::{EventRate, Gcra};

/// Decides which lines of one kind may be written.
#[derive(Debug)]
pub struct LogLimit {
    pace: EventRate,
    state: Mutex<LogLimitState>,
}

#[derive(Debug)]
struct LogLimitState {
    written: Gcra,
    /// Number of lines that were suppressed since the last one written.
    suppressed: u64,
}

impl LogLimit {
    /// Allows `per_second` lines a second, and a burst of at most `burst`. Zero counts as one for both.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        Self {
            pace: EventRate::new(per_second, Duration::from_secs(1), burst),
            state: Mutex::new(LogLimitState { written: Gcra::new(), suppressed: 0 }),
        }
    }

    /// Allows one line in each period of `time`.
    #[must_use]
    pub const fn every(time: Duration) -> Self {
        Self {
            pace: EventRate::new(1, time, 1),
            state: Mutex::new(LogLimitState { written: Gcra::new(), suppressed: 0 }),
        }
    }

    /// Returns the number of lines suppressed since the last one if a line may be written at `now`; otherwise `None`,
    /// and this line is counted as suppressed.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state();
        if state.written.take(self.pace, now).is_err() {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Returns the number of suppressed lines that no line has reported, if one may be written at `now`. For periodic
    /// callers, so that the last suppressed lines are reported too.
    pub fn left(&self, now: Instant) -> Option<u64> {
        if self.state().suppressed == 0 { None } else { self.allow(now) }
    }

    fn state(&self) -> MutexGuard<'_, LogLimitState> {
        // No operation leaves the state half changed, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::LogLimit;
    use crate::base::clock::{Clock as _, SystemClock};
    use std::time::Duration;

    #[test]
    fn after_a_burst_lines_come_at_the_rate_and_the_next_one_counts_the_rest() {
        let limit = LogLimit::new(2, 3);
        let start = SystemClock.instant();
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..3 {
            assert_eq!(limit.allow(start), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(limit.allow(at(10)), None);
        }
        assert_eq!(limit.allow(at(500)), Some(1000), "half a second is worth one line");
        assert_eq!(limit.allow(at(500)), None);
        assert_eq!(limit.allow(at(1000)), Some(1));
        // After a pause there is one burst again, and no more.
        let after: Vec<_> = (0..5).map(|_| limit.allow(at(60_000))).collect();
        assert_eq!(after, [Some(0), Some(0), Some(0), None, None]);
    }

    #[test]
    fn what_was_suppressed_last_can_be_told_without_another_line() {
        let limit = LogLimit::new(1, 1);
        let start = SystemClock.instant();
        assert_eq!(limit.left(start), None, "nothing was suppressed");
        assert_eq!(limit.allow(start), Some(0));
        assert_eq!(limit.allow(start), None);
        assert_eq!(limit.left(start), None, "no line may be written yet");
        let later = start + Duration::from_secs(10);
        assert!(limit.left(later).is_some_and(|count| count >= 1));
        assert_eq!(limit.left(later), None);
    }

    #[test]
    fn a_limit_of_nothing_still_lets_a_line_through_now_and_then() {
        let limit = LogLimit::new(0, 0);
        let start = SystemClock.instant();
        assert_eq!(limit.allow(start), Some(0));
        assert_eq!(limit.allow(start), None);
        assert_eq!(limit.allow(start + Duration::from_secs(1)), Some(1));
    }
}
