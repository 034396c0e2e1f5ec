//! Measures a computation: the heap that it has at most, and the work that it does.

use std::ops::RangeInclusive;

use allocation_counter::measure;
use policy_core::base::work::{USUAL_MOST, WorkBudget};

/// Bytes of the inputs before which nothing is compiled yet, and which are measured.
const SHORT: RangeInclusive<usize> = 512..=16 << 10;
/// Units of work for each request that a budget refuses: the value that is visited before it is made. A computation that
/// goes on after the end of its budget makes many.
const EACH_REFUSED: u64 = 64;

/// What an input may cost beyond what each of its bytes may, because a limit with a name of its own bounds it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    pub(crate) heap: usize,
    pub(crate) work: usize,
}

/// What a computation has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Bytes of the input.
    pub(crate) bytes: u64,
    /// Bytes that were allocated at once, at most, beyond those at the start and those that are allowed.
    pub(crate) heap: u64,
    /// Units that were spent from the budget of a message of this length, beyond what a message of any length may cost.
    pub(crate) spent: u64,
    /// Work that no budget bounds, beyond what is allowed: without a budget the bytes that were allocated in all, each of
    /// which was written; with one, what was done although it was exhausted.
    pub(crate) unbounded: u64,
}

impl Cost {
    /// All counted work.
    pub(crate) fn work(&self) -> u64 {
        self.spent + self.unbounded
    }
}

/// Collects the costs of the computations about one input.
#[derive(Debug, Default)]
pub(crate) struct Meter(Vec<Cost>);

impl Meter {
    /// Runs `work` for an input of `bytes` bytes.
    pub(crate) fn measure<T>(&mut self, bytes: usize, work: impl Fn(&WorkBudget) -> T) {
        self.measure_allowing(bytes, Allowance::default(), work);
    }

    /// Runs `work` for an input of `bytes` bytes that may cost more.
    ///
    /// With a short input it runs twice, and the second time counts: the first makes what is kept for all later inputs
    /// (compiled patterns and the caches of their automata), which is a property of the program and has bounds of its own.
    pub(crate) fn measure_allowing<T>(
        &mut self,
        bytes: usize,
        allowed: Allowance,
        work: impl Fn(&WorkBudget) -> T,
    ) {
        let budget = || WorkBudget::for_bytes(bytes, USUAL_MOST);
        if SHORT.contains(&bytes) {
            drop(work(&budget()));
        }
        let budget = budget();
        let taken = measure(|| drop(work(&budget)));
        let mut unbounded = 0;
        if budget.spent() == 0 && budget.refused() == 0 {
            unbounded = taken.bytes_total;
        }
        if budget.refused() > 0 {
            // What runs although nothing may be spent.
            let nothing = WorkBudget::new(0);
            let written = measure(|| drop(work(&nothing))).bytes_total;
            unbounded = written + EACH_REFUSED * budget.refused().max(nothing.refused());
        }
        let beyond =
            |cost: u64, allowed: usize| cost.saturating_sub(u64::try_from(allowed).unwrap());
        let base = WorkBudget::for_bytes(0, USUAL_MOST).left();
        self.0.push(Cost {
            bytes: u64::try_from(bytes).unwrap(),
            heap: beyond(taken.bytes_max, allowed.heap),
            spent: budget.spent().saturating_sub(base),
            unbounded: beyond(unbounded, allowed.work),
        });
    }

    /// The greatest costs of any computation.
    pub(crate) fn worst(&self) -> Cost {
        let worst = |one: Cost, other: &Cost| Cost {
            bytes: one.bytes.max(other.bytes),
            heap: one.heap.max(other.heap),
            spent: one.spent.max(other.spent),
            unbounded: one.unbounded.max(other.unbounded),
        };
        self.0.iter().fold(Cost::default(), worst)
    }
}
