//! Measures a computation: the heap that it has at most, and the work that it counts.

use allocation_counter::measure;
use policy_core::base::work::{USUAL_MOST, WorkBudget};

/// Bytes of the inputs before which nothing is compiled yet.
const SHORT: usize = 16 << 10;

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
    /// Units that were asked for beyond the budget of a message of this length, if the work is spent from one: what is
    /// done after the end of the budget.
    pub(crate) over_budget: Option<u64>,
}

/// Collects the costs of the computations about one input.
#[derive(Debug, Default)]
pub(crate) struct Meter(Vec<Cost>);

impl Meter {
    /// Runs `work` for an input of `bytes` bytes.
    ///
    /// With a short input it runs twice, and the second time counts: the first makes what is kept for all later inputs
    /// (compiled patterns and the caches of their automata), which is a property of the program and has bounds of its own.
    pub(crate) fn measure<T>(&mut self, bytes: usize, work: impl Fn(&WorkBudget) -> T) {
        if bytes <= SHORT {
            drop(work(&WorkBudget::unlimited()));
        }
        let budget = WorkBudget::unlimited();
        let taken = measure(|| drop(work(&budget)));
        let spent = budget.spent();
        let counted = if spent > 0 { spent } else { taken.bytes_total };
        let is_within = spent <= WorkBudget::for_bytes(bytes, USUAL_MOST).left();
        let over_budget = (spent > 0).then(|| if is_within { 0 } else { beyond(bytes, &work) });
        let bytes = u64::try_from(bytes).unwrap();
        self.0.push(Cost { bytes, heap: taken.bytes_max, work: counted, over_budget });
    }

    /// The greatest costs of any computation.
    pub(crate) fn worst(&self) -> Cost {
        let worst = |one: Cost, other: &Cost| Cost {
            bytes: one.bytes.max(other.bytes),
            heap: one.heap.max(other.heap),
            work: one.work.max(other.work),
            over_budget: one.over_budget.max(other.over_budget),
        };
        self.0.iter().fold(Cost::default(), worst)
    }
}

/// The units that are asked for beyond the budget of a message of so many bytes.
fn beyond<T>(bytes: usize, work: &impl Fn(&WorkBudget) -> T) -> u64 {
    let budget = WorkBudget::for_bytes(bytes, USUAL_MOST);
    let limit = budget.left();
    drop(work(&budget));
    budget.spent().saturating_sub(limit)
}
