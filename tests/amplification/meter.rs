//! Measures a computation: the heap that it has at most, and the work that it counts.

use allocation_counter::measure;
use policy_core::base::work::WorkBudget;

/// What a computation has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Bytes of the input.
    pub(crate) bytes: u64,
    /// Bytes that were allocated at once, at most, beyond those at the start.
    pub(crate) heap: u64,
    /// Units of a budget that were spent; for a computation without a budget, the bytes that it allocated in all, each
    /// of which it has written.
    pub(crate) work: u64,
    /// Whether the budget that a message of this length has has ended it.
    pub(crate) is_ended: bool,
}

/// Collects the costs of the computations about one input.
#[derive(Debug, Default)]
pub(crate) struct Meter(Vec<Cost>);

impl Meter {
    /// Runs `work` for an input of `bytes` bytes.
    ///
    /// It runs twice, and the second time counts: the first makes what is kept for all later inputs (compiled patterns
    /// and the caches of their automata), which is a property of the program and has bounds of its own.
    pub(crate) fn measure<T>(&mut self, bytes: usize, work: impl Fn(&WorkBudget) -> T) {
        drop(work(&WorkBudget::unlimited()));
        let budget = WorkBudget::unlimited();
        let taken = measure(|| drop(work(&budget)));
        let spent = budget.spent();
        let work = if spent > 0 { spent } else { taken.bytes_total };
        let limit = WorkBudget::for_bytes(bytes, policy_core::base::work::USUAL_MOST).left();
        let bytes = u64::try_from(bytes).unwrap();
        self.0.push(Cost { bytes, heap: taken.bytes_max, work, is_ended: spent > limit });
    }

    /// The greatest costs of any computation.
    pub(crate) fn worst(&self) -> Cost {
        let worst = |one: Cost, other: &Cost| Cost {
            bytes: one.bytes.max(other.bytes),
            heap: one.heap.max(other.heap),
            work: one.work.max(other.work),
            is_ended: one.is_ended || other.is_ended,
        };
        self.0.iter().fold(Cost::default(), worst)
    }
}
