//! What one exchange may cost: a budget of work that every inspection, schema check and condition spends
//! from, and a flag that ends it early (vectors PV-37 and PV-38).
//!
//! Peers choose texts, schemas and values, so the cost of looking at them is theirs to choose as well,
//! within what the detectors make of it. A [`Budget`] bounds the product: a computation says before
//! or while it runs what it costs, and stops when there is nothing left. What could not be looked at
//! to its end is withheld.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What every message may cost, however short it is, in units.
const BASE: u64 = 2 << 20;
/// What each byte of a message may cost, in units. Ordinary text costs 10 to 30.
const EACH_BYTE: u64 = 256;
/// What is spent for each thing that is found, in units: it is kept, hashed and replaced.
pub const EACH_FOUND: usize = 1024;

/// Most units that one message may cost by default, about one second of a processor.
pub const USUAL_MOST: u64 = 1 << 30;

/// How many units are spent between two pauses: about a quarter of a millisecond.
const UNITS_BETWEEN_PAUSES: u64 = 1 << 17;

/// What the inspection of a message may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Most units, however long the message is.
    pub most: u64,
    /// Units for each byte of it.
    pub each_byte: u64,
}

impl Work {
    /// What counts where nothing else is configured.
    pub const USUAL: Self = Self { most: USUAL_MOST, each_byte: EACH_BYTE };
}

impl From<u64> for Work {
    fn from(most: u64) -> Self {
        Self { most, ..Self::USUAL }
    }
}

/// Ends a computation early: set when nobody waits for its result any more.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends what spends from a budget with this flag, at the next time that it spends.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the computation is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the inspection of one message may still cost. One unit is one byte that one detector looks at, or
/// a step of about that cost (one to three nanoseconds).
///
/// It is spent by one thread; the flag in it can be set by any.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    spent: Cell<u64>,
    exhausted: Cell<bool>,
    cancel: Cancel,
    pause: Option<fn()>,
    /// At how many spent units the next pause is due.
    pause_due: Cell<u64>,
}

impl Budget {
    /// A budget of `limit` units.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let (spent, exhausted) = (Cell::new(0), Cell::new(false));
        let pause_due = Cell::new(UNITS_BETWEEN_PAUSES);
        Self { limit, spent, exhausted, cancel: Cancel::default(), pause: None, pause_due }
    }

    /// The budget of a message of so many bytes: in proportion to its length, and `most` at most.
    #[must_use]
    pub fn for_bytes(bytes: usize, most: u64) -> Self {
        Self::of(bytes, Work::from(most))
    }

    /// The budget of a message of so many bytes.
    #[must_use]
    pub fn of(bytes: usize, work: Work) -> Self {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Self::new(bytes.saturating_mul(work.each_byte).saturating_add(BASE).min(work.most))
    }

    /// A budget without a limit, for texts of people who run the program themselves.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// The same, ended by `cancel` too.
    #[must_use]
    pub fn with_cancel(self, cancel: Cancel) -> Self {
        Self { cancel, ..self }
    }

    /// The same, with a `pause` that is made about every quarter of a millisecond of work: a thread that computes for
    /// long gives the processor up there, so that others need not wait for the end of its time slice.
    #[must_use]
    pub fn with_pause(self, pause: fn()) -> Self {
        Self { pause: Some(pause), ..self }
    }

    /// Spends `units`. `false` when there is not enough left, or when nobody waits any more: then the
    /// computation ends, and so does every later one with this budget.
    #[must_use]
    pub fn spend(&self, units: usize) -> bool {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        let spent = self.spent.get().saturating_add(units);
        self.spent.set(spent);
        if spent > self.limit || self.cancel.is_cancelled() {
            self.exhausted.set(true);
        }
        if spent >= self.pause_due.get() {
            self.pause_due.set(spent.saturating_add(UNITS_BETWEEN_PAUSES));
            if let Some(pause) = self.pause {
                pause();
            }
        }
        !self.exhausted.get()
    }

    /// Whether something could not be computed to its end.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    /// How many units are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent.get())
    }

    /// How many units have been asked for.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Cancel, Work};

    #[test]
    fn what_is_over_stays_over() {
        let budget = Budget::new(100);
        assert!(budget.spend(60) && budget.spend(40) && !budget.is_exhausted());
        assert!(!budget.spend(1) && !budget.spend(0) && budget.is_exhausted());
        assert!(Budget::unlimited().spend(usize::MAX));
    }

    #[test]
    fn a_long_message_may_cost_more_than_a_short_one_and_no_more_than_the_most() {
        assert!(Budget::for_bytes(0, u64::MAX).spend(1 << 20));
        assert!(!Budget::for_bytes(0, u64::MAX).spend(1 << 30));
        assert!(Budget::for_bytes(1 << 22, u64::MAX).spend(1 << 30));
        assert!(!Budget::for_bytes(usize::MAX, 1 << 30).spend((1 << 30) + 1));
        let generous = Work { each_byte: 1024, ..Work::USUAL };
        assert!(Budget::of(1 << 12, generous).spend((2 << 20) + (1 << 22)));
        assert!(!Budget::of(1 << 12, Work::USUAL).spend((2 << 20) + (1 << 22)));
    }

    #[test]
    fn a_long_computation_pauses_again_and_again() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static PAUSES: AtomicUsize = AtomicUsize::new(0);
        let budget = Budget::unlimited().with_pause(|| {
            PAUSES.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..100 {
            assert!(budget.spend(1 << 16));
        }
        assert_eq!(PAUSES.load(Ordering::Relaxed), 50);
    }

    #[test]
    fn a_computation_ends_when_it_is_cancelled() {
        let cancel = Cancel::default();
        let budget = Budget::unlimited().with_cancel(cancel.clone());
        assert!(budget.spend(1));
        cancel.cancel();
        assert!(!budget.spend(1) && budget.is_exhausted());
    }
}
