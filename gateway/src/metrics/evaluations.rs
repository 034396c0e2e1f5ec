//! How often each control was asked. An exchange asks many, and nearly always the same ones: it is
//! counted once, under the set of them, and the sets are taken apart when somebody reads.

use std::sync::atomic::{AtomicU32, Ordering};

use policy::control::{Control, Ran};

use super::Counter;

/// Most sets that are counted as such.
const SETS: usize = 32;
/// No set: nothing is counted of what has asked nothing.
const FREE: u32 = 0;

/// Counters of controls.
#[derive(Debug)]
pub(super) struct Evaluations {
    /// Sets of controls in the order in which they came up, so that what is usual is found first.
    sets: [(AtomicU32, Counter); SETS],
    /// What came after the last of these.
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
    /// Counts each of these once.
    pub(super) fn count(&self, ran: Ran) {
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

    /// How often each was asked.
    pub(super) fn read(&self) -> impl Iterator<Item = (Control, u64)> {
        let sets: Vec<_> = self
            .sets
            .iter()
            .map(|(known, count)| (Ran::from_bits(known.load(Ordering::Relaxed)), count.get()))
            .collect();
        Control::ALL.into_iter().zip(&self.others).map(move |(control, apart)| {
            let with = sets.iter().filter(|(set, _)| set.has(control));
            (control, apart.get() + with.map(|(_, count)| count).sum::<u64>())
        })
    }
}

/// Whether a place is that of `set`, from now on if it was free.
fn takes(known: &AtomicU32, set: u32) -> bool {
    let mut found = known.load(Ordering::Relaxed);
    if found == FREE {
        // Whoever comes first has it; a set never goes again, so the counters only grow.
        let taken = known.compare_exchange(FREE, set, Ordering::Relaxed, Ordering::Relaxed);
        found = taken.map_or_else(|now| now, |_| set);
    }
    found == set
}

#[cfg(test)]
mod tests {
    use super::{Evaluations, SETS};
    use policy::control::{Control, Ran};
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn each_is_counted_as_often_as_it_was_asked(
            asked in proptest::collection::vec(proptest::bits::u32::ANY, 0..3 * SETS),
        ) {
            let every: u32 = Ran::of(&Control::ALL).bits();
            let asked: Vec<_> = asked.into_iter().map(|bits| Ran::from_bits(bits & every)).collect();
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
