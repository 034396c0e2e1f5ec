//! The only place that asks the machine for the time.

use std::fmt;
use std::time::{Instant, SystemTime};

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The time of day, for records and expiries.
    fn now(&self) -> SystemTime;
    /// A time that only moves forward, for durations.
    fn instant(&self) -> Instant;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the clock")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the clock")]
    fn instant(&self) -> Instant {
        Instant::now()
    }
}
