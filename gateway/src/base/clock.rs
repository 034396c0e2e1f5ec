//! The clock: the only module that reads the time of the machine. Everything else takes a [`Clock`], so tests can set
//! the time.

use std::fmt;
use std::time::{Instant, SystemTime};

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time of day, for records and expiries.
    fn now(&self) -> SystemTime;
    /// Monotonic time, for durations.
    fn instant(&self) -> Instant;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the clock")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the clock")]
    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// A clock of which a test sets the monotonic time. The time of day is that of the machine.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct HandClock(std::sync::Mutex<Instant>);

#[cfg(test)]
impl HandClock {
    /// A clock that stands at the present.
    pub(crate) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(std::sync::Mutex::new(SystemClock.instant())))
    }

    /// Sets the clock ahead.
    pub(crate) fn forward(&self, by: std::time::Duration) {
        *self.0.lock().unwrap() += by;
    }
}

#[cfg(test)]
impl Clock for HandClock {
    fn now(&self) -> SystemTime {
        SystemClock.now()
    }

    fn instant(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}
