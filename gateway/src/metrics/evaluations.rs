//! Counts how often each control was evaluated. An exchange evaluates many controls and nearly always the same set
//! of them, so it increments one counter for the whole set; reading the metrics splits the sets into controls.

use std::sync::atomic::{AtomicU32, Ordering};

use policy::rules::control::{Control, ControlSet};

use super::Counter;

/// Maximum number of sets with a counter of their own.
const SETS: usize = 32;
/// Marks an unused entry. The empty set has no counter, so its bits are free for this.
const FREE: u32 = 0;

/// Evaluation counters, by set of controls.
#[derive(Debug)]
pub(super) struct Evaluations {
    /// The sets in the order of their first use, so that a scan finds the common ones first.
    sets: [(AtomicU32, Counter); SETS],
    /// Evaluations by control, for sets that came after all `SETS` entries were in use.
    others: [Counter; Control::ALL.len()],
}

impl Default for Evaluations {
    fn default() -> Self {
        Self {
            sets: std::array::from_fn(|_| (AtomicU32::new(FREE), Counter::default())),
            others: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl Evaluations {
    /// Counts one evaluation of each control in `ran`.
    pub(super) fn count(&self, ran: ControlSet) {
        let set = ran.bits();
        if set == FREE {
            return;
        }
        match self.sets.iter().find(|(known, _)| takes(known, set)) {
            Some((_, count)) => count.add(1),
            None => {
                let counters = Control::ALL.into_iter().zip(&self.others);
                counters.filter(|(control, _)| ran.has(*control)).for_each(|(_, one)| one.add(1));
            }
        }
    }

    /// How often each control was evaluated.
    pub(super) fn read(&self) -> impl Iterator<Item = (Control, u64)> {
        let sets: Vec<_> = self
            .sets
            .iter()
            .map(|(known, count)| {
                (ControlSet::from_bits(known.load(Ordering::Relaxed)), count.get())
            })
            .collect();
        Control::ALL.into_iter().zip(&self.others).map(move |(control, apart)| {
            let with = sets.iter().filter(|(set, _)| set.has(control));
            (control, apart.get() + with.map(|(_, count)| count).sum::<u64>())
        })
    }
}

/// Whether this entry belongs to `set`. An unused entry is claimed for it.
fn takes(known: &AtomicU32, set: u32) -> bool {
    let mut found = known.load(Ordering::Relaxed);
    if found == FREE {
        // Only the first exchange with a new set claims the entry, and entries are never released, so the counters
        // only grow.
        let taken = known.compare_exchange(FREE, set, Ordering::Relaxed, Ordering::Relaxed);
        found = taken.map_or_else(|now| now, |_| set);
    }
    found == set
}

#[cfg(test)]
mod tests {
    use super::{Evaluations, SETS};
    use policy::rules::control::{Control, ControlSet};
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn each_is_counted_as_often_as_it_was_asked(
            asked in proptest::collection::vec(proptest::bits::u32::ANY, 0..3 * SETS),
        ) {
            let every: u32 = ControlSet::of(&Control::ALL).bits();
            let asked: Vec<_> = asked.into_iter().map(|bits| ControlSet::from_bits(bits & every)).collect();
            let counted = Evaluations::default();
            // Twice, so that what has a place of its own and what has none are both found again.
            asked.iter().chain(&asked).for_each(|ran| counted.count(*ran));
            for (control, count) in counted.read() {
                let with = asked.iter().filter(|ran| ran.has(control)).count();
                prop_assert_eq!(count, 2 * with as u64);
            }
        }
    }
}
