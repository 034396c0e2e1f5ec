//! How likely a request to an upstream server succeeds now, from how its latest requests ended (control C16). It ranks
//! tools; it stops no request.
//!
//! Only what the circuit breaker counts counts: whether the server itself failed, for any request of a caller. Nothing
//! here is locked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The time after which an answer or a failure counts half.
const HALF_LIFE_SECONDS: f32 = 30.0;
/// How many answers are assumed beside those that are known, so that one failure says little.
const ASSUMED_ANSWERS: f32 = 1.0;
/// Answers that take less are not slow, in seconds.
const FAST_SECONDS: f32 = 1.0;
/// Answers that take more are not slower, in seconds.
const SLOW_SECONDS: f32 = 10.0;
/// What is lost if answers are as slow as can be.
const SLOW_LOSS: f32 = 0.3;
/// From here on a server counts as available: a few failures among many answers set it apart from no other.
const AVAILABLE: f32 = 0.95;
/// Ticks of the clock in a second.
const TICKS: f32 = 16.0;

/// A sum that halves in [`HALF_LIFE_SECONDS`]: its time in ticks in the upper half, and the sum at that time in the lower.
#[derive(Debug, Default)]
struct FadingSum(AtomicU64);

impl FadingSum {
    fn at(packed: u64, now: u32) -> f32 {
        let [upper, lower] = [packed >> 32, packed & u64::from(u32::MAX)];
        let [at, bits] = [upper, lower].map(|half| u32::try_from(half).unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "a time need not be exact")]
        let age = now.saturating_sub(at) as f32 / TICKS;
        f32::from_bits(bits) * 0.5_f32.powf(age / HALF_LIFE_SECONDS)
    }

    fn get(&self, now: u32) -> f32 {
        Self::at(self.0.load(Ordering::Relaxed), now)
    }

    fn add(&self, more: f32, now: u32) {
        let add = |packed| {
            let sum = Self::at(packed, now) + more;
            Some(u64::from(now) << 32 | u64::from(sum.to_bits()))
        };
        let _before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// How the latest requests to a server ended.
#[derive(Debug)]
pub(super) struct ServerHealth {
    born: Instant,
    answered: FadingSum,
    failed: FadingSum,
    /// How many seconds the answers took together.
    seconds: FadingSum,
}

impl ServerHealth {
    pub(super) fn new(born: Instant) -> Self {
        let sum = FadingSum::default;
        Self { born, answered: sum(), failed: sum(), seconds: sum() }
    }

    fn tick(&self, now: Instant) -> u32 {
        let ticks = now.saturating_duration_since(self.born).as_secs_f32() * TICKS;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and a conversion to an integer saturates"
        )]
        let ticks = ticks as u32;
        ticks
    }

    /// Notes an answer that took `time`.
    pub(super) fn answered(&self, time: Duration, now: Instant) {
        let now = self.tick(now);
        self.answered.add(1.0, now);
        self.seconds.add(time.as_secs_f32().min(SLOW_SECONDS), now);
    }

    /// Notes that the server failed.
    pub(super) fn failed(&self, now: Instant) {
        self.failed.add(1.0, self.tick(now));
    }

    /// How likely a request succeeds now, between 0 and 1; 1 if nothing is known.
    pub(super) fn available(&self, now: Instant) -> f32 {
        let now = self.tick(now);
        let (answered, failed) = (self.answered.get(now), self.failed.get(now));
        let succeeding = 1.0 - failed / (failed + answered + ASSUMED_ANSWERS);
        let mean = self.seconds.get(now) / answered.max(f32::MIN_POSITIVE);
        let slow = ((mean - FAST_SECONDS) / (SLOW_SECONDS - FAST_SECONDS)).clamp(0.0, 1.0);
        // A few answers are as little a proof as a few failures.
        let known = answered / (answered + ASSUMED_ANSWERS);
        let available = succeeding * (1.0 - SLOW_LOSS * slow * known);
        if available < AVAILABLE { available } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::ServerHealth;

    const FAST: Duration = Duration::from_millis(20);

    #[test]
    fn failures_count_until_the_server_answers_or_time_has_passed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let health = ServerHealth::new(start);
        assert!((health.available(start) - 1.0).abs() < 0.001);
        (0..20).for_each(|_| health.answered(FAST, start));
        assert!((health.available(start) - 1.0).abs() < 0.001);
        (0..5).for_each(|_| health.failed(at(1)));
        let failing = health.available(at(1));
        assert!((0.7..0.9).contains(&failing), "{failing}");
        (0..100).for_each(|_| health.failed(at(2)));
        assert!(health.available(at(2)) < 0.3);
        (0..100).for_each(|_| health.answered(FAST, at(3)));
        assert!(health.available(at(3)) > failing - 0.4);
        assert!(health.available(at(600)) > 0.99, "what is long ago counts nothing");
    }

    #[test]
    fn slow_answers_count_less_than_failures() {
        let start = Instant::now();
        let [fast, slow, failing] = [(); 3].map(|()| ServerHealth::new(start));
        for _ in 0..20 {
            fast.answered(Duration::from_millis(900), start);
            slow.answered(Duration::from_secs(60), start);
            failing.failed(start);
        }
        assert!((fast.available(start) - 1.0).abs() < 0.001);
        assert!((0.65..0.8).contains(&slow.available(start)));
        assert!(failing.available(start) < slow.available(start));
        // A clock that runs back is no reason for anything.
        assert!(slow.available(start - Duration::from_secs(5)) <= 1.0);
    }
}
