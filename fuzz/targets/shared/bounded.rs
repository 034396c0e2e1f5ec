//! Checks that what an input costs stays within the budget of an input of its length.
//!
//! Two things are compared: the units of work that the code under test counts, and the processor time of this
//! thread. A cost that is worse than linear and that no unit counts shows in the second.

use policy_core::base::work::{USUAL_MOST, WorkBudget};
use rustix::time::{ClockId, clock_gettime};

/// Most processor time for one unit of a budget, in nanoseconds. A unit is one to three nanoseconds of a release
/// build; sanitizers and coverage make it up to thirty times as slow, and a test is built without optimisation.
const EACH_UNIT: u128 = if cfg!(test) { 1000 } else { 100 };

/// The processor time of this thread, in nanoseconds.
fn thread_time() -> u128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u128::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u128::try_from(time.tv_nsec).unwrap_or(0)
}

/// Runs `work` with the budget of an input of `bytes` bytes, as the gateway does.
///
/// # Panics
/// When it takes longer than its budget is worth.
pub(super) fn bounded<T>(bytes: usize, work: impl FnOnce(&WorkBudget) -> T) -> T {
    let budget = WorkBudget::for_bytes(bytes, USUAL_MOST);
    let started = thread_time();
    let result = work(&budget);
    let took = thread_time() - started;
    // The budget of no bytes is what every input may cost; the rest is in proportion to the bytes.
    let each_byte = 256 * u128::try_from(bytes).unwrap_or(u128::MAX);
    let most = (each_byte + (2 << 20)) * EACH_UNIT;
    assert!(
        took <= most,
        "{bytes} bytes took {took} ns, {} units were counted; the most is {most} ns",
        budget.spent()
    );
    result
}
