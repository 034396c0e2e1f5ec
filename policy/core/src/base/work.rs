//! Bounds the work of one exchange: a budget that every inspection, schema check and condition spends
//! from, and a flag that cancels it (vectors PV-37 and PV-38).
//!
//! Peers choose texts, schemas and values, so within the complexity of the detectors they also choose the cost of
//! looking at them. A [`WorkBudget`] bounds that cost: a computation declares what it costs before or while it runs, and
//! stops when nothing is left. Content that could not be inspected to its end is withheld.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::compiled::is_any_broken;

/// Units that every message may cost, regardless of its length.
const BASE: u64 = 2 << 20;
/// Units that each byte of a message may cost. Half of the ordinary texts of 16 KiB and more cost up to 41, one in ten more than
/// 110, and source code or documentation of security up to 235 (`docs/limits.md`).
const EACH_BYTE: u64 = 256;
/// Units that each finding costs: it is kept, hashed and replaced.
pub const EACH_FOUND: usize = 1024;

/// Most units that one message may cost by default, about one second of a processor.
pub const USUAL_MOST: u64 = 1 << 30;

/// Units between two pauses: about a quarter of a millisecond.
const UNITS_BETWEEN_PAUSES: u64 = 1 << 17;

/// How much work the inspection of a message may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkLimits {
    /// Upper bound in units, for a message of any length.
    pub most: u64,
    /// Units for each byte of the message.
    pub each_byte: u64,
}

impl WorkLimits {
    /// The default, where nothing else is configured.
    pub const USUAL: Self = Self { most: USUAL_MOST, each_byte: EACH_BYTE };
}

impl From<u64> for WorkLimits {
    fn from(most: u64) -> Self {
        Self { most, ..Self::USUAL }
    }
}

/// Cancels a computation; set when nothing waits for its result any more.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Stops the computations whose budget has this flag, the next time that they spend.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The remaining work for the inspection of one message. One unit is one byte that one detector looks at, or
/// a step of about that cost (one to three nanoseconds).
///
/// It is spent by one thread; the flag in it can be set by any.
#[derive(Debug)]
pub struct WorkBudget {
    limit: u64,
    spent: Cell<u64>,
    exhausted: Cell<bool>,
    /// Requests since it is exhausted, the first one included.
    refused: Cell<u64>,
    cancel: CancelFlag,
    pause: Option<fn()>,
    /// Spent units at which the next pause is due.
    pause_due: Cell<u64>,
}

impl WorkBudget {
    /// A budget of `limit` units.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let (spent, exhausted, refused) = (Cell::new(0), Cell::new(false), Cell::new(0));
        let (cancel, pause_due) = (CancelFlag::default(), Cell::new(UNITS_BETWEEN_PAUSES));
        Self { limit, spent, exhausted, refused, cancel, pause: None, pause_due }
    }

    /// The budget of a message of `bytes` bytes: proportional to its length, and at most `most` units.
    #[must_use]
    pub fn for_bytes(bytes: usize, most: u64) -> Self {
        Self::of(bytes, WorkLimits::from(most))
    }

    /// The budget of a message of `bytes` bytes under `work`.
    #[must_use]
    pub fn of(bytes: usize, work: WorkLimits) -> Self {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self::new(bytes.saturating_mul(work.each_byte).saturating_add(BASE).min(work.most))
    }

    /// A budget without a limit, for the texts of the operator's own commands.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// This budget, which `cancel` exhausts as well.
    #[must_use]
    pub fn with_cancel(self, cancel: CancelFlag) -> Self {
        Self { cancel, ..self }
    }

    /// This budget, with a `pause` that runs about every quarter of a millisecond of work, in which a long computation
    /// yields the processor, so that other threads need not wait for the end of its time slice.
    #[must_use]
    pub fn with_pause(self, pause: fn()) -> Self {
        Self { pause: Some(pause), ..self }
    }

    /// Spends `units`. `false` when not enough is left or the budget is cancelled: the caller ends its computation without
    /// the work that it asked for, and every later call returns `false` too.
    #[must_use]
    pub fn spend(&self, units: usize) -> bool {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        let spent = self.spent.get().saturating_add(units);
        if spent > self.limit || self.cancel.is_cancelled() || is_any_broken() {
            self.exhausted.set(true);
        }
        if self.exhausted.get() {
            self.refused.set(self.refused.get().saturating_add(1));
            return false;
        }
        self.spent.set(spent);
        if spent >= self.pause_due.get() {
            self.pause_due.set(spent.saturating_add(UNITS_BETWEEN_PAUSES));
            if let Some(pause) = self.pause {
                pause();
            }
        }
        true
    }

    /// Whether a computation ran out of budget or was cancelled, or a detector of the program does not compile.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.get() || is_any_broken()
    }

    /// Units that are left: none when it is exhausted.
    #[must_use]
    pub fn left(&self) -> u64 {
        if self.exhausted.get() { 0 } else { self.limit.saturating_sub(self.spent.get()) }
    }

    /// Units that were spent so far, at most the limit.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Requests that were refused: what still runs when the budget is exhausted makes them.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::{CancelFlag, WorkBudget, WorkLimits};

    #[test]
    fn what_is_over_stays_over() {
        let budget = WorkBudget::new(100);
        assert!(budget.spend(60) && budget.spend(40) && !budget.is_exhausted());
        assert!(!budget.spend(1) && !budget.spend(0) && budget.is_exhausted());
        assert_eq!((budget.spent(), budget.refused(), budget.left()), (100, 2, 0));
        assert!(WorkBudget::unlimited().spend(usize::MAX));
    }

    #[test]
    fn a_long_message_may_cost_more_than_a_short_one_and_no_more_than_the_most() {
        assert!(WorkBudget::for_bytes(0, u64::MAX).spend(1 << 20));
        assert!(!WorkBudget::for_bytes(0, u64::MAX).spend(1 << 30));
        assert!(WorkBudget::for_bytes(1 << 22, u64::MAX).spend(1 << 30));
        assert!(!WorkBudget::for_bytes(usize::MAX, 1 << 30).spend((1 << 30) + 1));
        let generous = WorkLimits { each_byte: 1024, ..WorkLimits::USUAL };
        assert!(WorkBudget::of(1 << 12, generous).spend((2 << 20) + (1 << 22)));
        assert!(!WorkBudget::of(1 << 12, WorkLimits::USUAL).spend((2 << 20) + (1 << 22)));
    }

    #[test]
    fn a_long_computation_pauses_again_and_again() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static PAUSES: AtomicUsize = AtomicUsize::new(0);
        let budget = WorkBudget::unlimited().with_pause(|| {
            PAUSES.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..100 {
            assert!(budget.spend(1 << 16));
        }
        assert_eq!(PAUSES.load(Ordering::Relaxed), 50);
    }

    #[test]
    fn a_computation_ends_when_it_is_cancelled() {
        let cancel = CancelFlag::default();
        let budget = WorkBudget::unlimited().with_cancel(cancel.clone());
        assert!(budget.spend(1));
        cancel.cancel();
        assert!(!budget.spend(1) && budget.is_exhausted());
    }
}
