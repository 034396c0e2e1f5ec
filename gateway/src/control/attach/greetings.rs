//! Admits connections that have not proved yet that they know the token.
//!
//! Every process of the user can connect and send nothing, and an honest client must still find a place. When all
//! places are taken, one held place is therefore given up: the oldest of those processes that hold the most together.
//! Which processes belong together follows from their [`Lineage`]: at each step from the first ancestor downwards,
//! processes below the same ancestor, or in the same session or group, are counted together. A process that connects
//! repeatedly loses its own places, and one that starts many processes loses theirs.
//!
//! An honest client proves itself within milliseconds. Every connection is left [`GRACE`] for that, even when so many
//! processes connect that honest ones cannot be told apart; later connections then wait in the backlog of the kernel.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::process::ancestry::Lineage;

/// Maximum number of connections that have not proved themselves; they take no place of a client.
const PLACES: usize = 128;
/// Maximum number of these for one process. A client needs one.
const PER_PROCESS: usize = 4;
/// Minimum time before another process can take the place of a connection.
const GRACE: Duration = Duration::from_millis(100);

/// The places and their holders.
#[derive(Debug, Default)]
pub(super) struct HandshakeSlots {
    table: Mutex<SlotTable>,
    /// Notified when a place is freed.
    freed: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    /// The held places, oldest first.
    held: Vec<SlotHolder>,
    /// The id of the next place.
    next: u64,
}

/// A connection that holds a place.
#[derive(Debug)]
struct SlotHolder {
    id: u64,
    lineage: Lineage,
    since: Instant,
    evicted: CancellationToken,
}

/// A held place, freed on drop.
#[derive(Debug)]
pub(super) struct HandshakeSlot {
    id: u64,
    greetings: Arc<HandshakeSlots>,
    evicted: CancellationToken,
}

/// The place that the next connection can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotChoice {
    /// A place is free.
    Free,
    /// The place of the connection at this index is taken over.
    InsteadOf(usize),
    /// No place before this moment, unless one is freed: the connection to be evicted is within its grace.
    Later(Instant),
}

impl HandshakeSlots {
    /// Takes a place for a connection of a process with this lineage, possibly that of another connection. Waits for
    /// at most [`GRACE`] at a time.
    pub(super) async fn enter(self: &Arc<Self>, lineage: Lineage) -> HandshakeSlot {
        loop {
            let later = match self.try_enter(&lineage) {
                Ok(greeting) => return greeting,
                Err(later) => later,
            };
            tokio::select! {
                () = sleep_until(later) => {}
                () = self.freed.notified() => {}
            }
        }
    }

    /// Like [`Self::enter`] without waiting; fails with the moment to try again.
    fn try_enter(self: &Arc<Self>, lineage: &Lineage) -> Result<HandshakeSlot, Instant> {
        let now = Instant::now();
        let mut table = self.table();
        match room(&table.held, lineage, now) {
            SlotChoice::Free => {}
            SlotChoice::InsteadOf(index) => table.held.remove(index).evicted.cancel(),
            SlotChoice::Later(later) => return Err(later),
        }
        let (id, evicted) = (table.next, CancellationToken::new());
        table.next = id.wrapping_add(1);
        let (lineage, token) = (lineage.clone(), evicted.clone());
        table.held.push(SlotHolder { id, lineage, since: now, evicted: token });
        Ok(HandshakeSlot { id, greetings: Arc::clone(self), evicted })
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        // No operation leaves the table half changed, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandshakeSlot {
    /// Resolves when another connection has taken the place.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.greetings.table().held.retain(|held| held.id != self.id);
        self.greetings.freed.notify_one();
    }
}

/// Finds a place for a connection of a process with the lineage `next` at `now`. `held` is ordered from oldest to
/// newest.
fn room(held: &[SlotHolder], next: &Lineage, now: Instant) -> SlotChoice {
    let own = held.iter().enumerate().filter(|(_, one)| one.lineage.is_of_same_process(next));
    let own: Vec<usize> = own.map(|(index, _)| index).collect();
    if let Some(oldest) = own.first().filter(|_| own.len() >= PER_PROCESS) {
        return SlotChoice::InsteadOf(*oldest);
    }
    if held.len() < PLACES {
        return SlotChoice::Free;
    }
    let index = heaviest(held);
    match held.get(index) {
        Some(one) if now < one.since + GRACE => SlotChoice::Later(one.since + GRACE),
        Some(_) | None => SlotChoice::InsteadOf(index),
    }
}

/// The index of the oldest connection of the processes that hold the most together.
fn heaviest(held: &[SlotHolder]) -> usize {
    let mut among: Vec<usize> = (0..held.len()).collect();
    for step in 0.. {
        let mut branches: HashMap<_, Vec<usize>> = HashMap::new();
        for index in among {
            let kin = held.get(index).and_then(|one| one.lineage.at(step));
            branches.entry(kin).or_default().push(index);
        }
        // The first of each branch is its oldest. Among equal branches, the one with the oldest connection is chosen.
        let weight = |branch: &Vec<usize>| (branch.len(), Reverse(branch.first().copied()));
        let heaviest = branches.into_iter().max_by_key(|(_, branch)| weight(branch));
        let Some((kin, branch)) = heaviest else { break };
        if kin.is_none() {
            return branch.first().copied().unwrap_or_default();
        }
        among = branch;
    }
    0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::process::Pid;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::{GRACE, HandshakeSlots, PER_PROCESS, PLACES, SlotChoice, SlotHolder, room};
    use crate::process::ancestry::{Lineage, LineageEntry};

    /// A process below these, each the leader of its own session.
    fn below(ids: &[i32]) -> Lineage {
        let pids = ids.iter().map(|id| Pid::from_raw(*id).unwrap());
        Lineage::made(
            pids.flat_map(|pid| [LineageEntry::Session(pid), LineageEntry::Process(pid)]).collect(),
        )
    }

    /// A process whose parent has ended, in the session of that parent.
    fn orphan(session: i32, id: i32) -> Lineage {
        let [first, session, id] = [1, session, id].map(|id| Pid::from_raw(id).unwrap());
        Lineage::made(vec![
            LineageEntry::Process(first),
            LineageEntry::Session(session),
            LineageEntry::Process(id),
        ])
    }

    /// Connections that arrived one millisecond apart, the last of them at `last`.
    fn held(lineages: Vec<Lineage>, last: Instant) -> Vec<SlotHolder> {
        let count = u32::try_from(lineages.len()).unwrap();
        let ages = (0..count).rev().map(|age| Duration::from_millis(1) * age);
        let all = lineages.into_iter().zip(ages).zip(0..);
        let made = all.map(|((lineage, age), id)| {
            let evicted = CancellationToken::new();
            SlotHolder { id, lineage, since: last - age, evicted }
        });
        made.collect()
    }

    #[test]
    fn one_process_makes_room_from_its_own_places() {
        let now = Instant::now();
        let mut lineages = vec![below(&[1, 5])];
        lineages.extend((0..PER_PROCESS).map(|_| below(&[1, 7])));
        let held = held(lineages, now);
        assert_eq!(room(&held, &below(&[1, 7]), now), SlotChoice::InsteadOf(1));
        assert_eq!(room(&held, &below(&[1, 5]), now), SlotChoice::Free);
        assert_eq!(room(&held[..PER_PROCESS], &below(&[1, 7]), now), SlotChoice::Free);
    }

    #[test]
    fn what_cannot_be_seen_is_not_taken_for_one_process() {
        let now = Instant::now();
        let held = held(vec![Lineage::default(); PLACES - 1], now);
        assert_eq!(room(&held, &Lineage::default(), now), SlotChoice::Free);
    }

    #[test]
    fn those_that_hold_the_most_together_make_room() {
        let now = Instant::now();
        for flood in [
            |id: i32| below(&[1, 50, 1000 + id]),
            |id: i32| below(&[1, 50, 900 + id / 40, 1000 + id]),
            |id: i32| orphan(50, 1000 + id),
            |_: i32| Lineage::default(),
        ] {
            // The oldest ones are honest: a client by itself, and two below an editor.
            let mut lineages = vec![below(&[1, 5]), below(&[1, 6, 7]), below(&[1, 6, 8])];
            lineages.extend((0..).map(flood).take(PLACES - 3));
            let held = held(lineages, now - GRACE);
            assert_eq!(room(&held[1..], &below(&[1, 9]), now), SlotChoice::Free);
            let SlotChoice::InsteadOf(index) = room(&held, &below(&[1, 9]), now) else { panic!() };
            assert!(index >= 3, "{index}");
        }
    }

    #[test]
    fn where_none_holds_more_than_another_the_oldest_makes_room_after_its_grace() {
        let last = Instant::now();
        let lineages = (0..).map(|id| below(&[1, 1000 + id])).take(PLACES);
        let held = held(lineages.collect(), last);
        let first = held[0].since;
        let room = |now| room(&held, &below(&[1, 9]), now);
        assert_eq!(room(first), SlotChoice::Later(first + GRACE));
        assert_eq!(room(first + GRACE), SlotChoice::InsteadOf(0));
    }

    #[test]
    fn those_that_hold_the_most_make_room_also_where_they_have_just_come() {
        let now = Instant::now();
        let mut lineages = vec![below(&[1, 5])];
        lineages.extend((0..).map(|id| below(&[1, 50, 1000 + id])).take(PLACES - 1));
        let mut held = held(lineages, now - GRACE);
        for one in &mut held[1..] {
            one.since = now;
        }
        // The honest client's grace has passed, but its place is kept.
        let room = |now| room(&held, &below(&[1, 9]), now);
        assert_eq!(room(now), SlotChoice::Later(now + GRACE));
        assert_eq!(room(now + GRACE), SlotChoice::InsteadOf(1));
    }

    #[tokio::test]
    async fn a_place_is_given_back_and_who_comes_next_gets_it() {
        let greetings = Arc::new(HandshakeSlots::default());
        let mut places = Vec::new();
        for id in (0..).take(PLACES) {
            places.push(greetings.enter(below(&[1, 1000 + id])).await);
        }
        drop(places.pop());
        places.push(greetings.enter(below(&[1, 9])).await);
        assert!(places.iter().all(|place| !place.evicted.is_cancelled()));
        // The next connection waits, and the oldest makes room.
        let next = greetings.enter(below(&[1, 10])).await;
        places[0].evicted().await;
        assert!(places[1..].iter().all(|place| !place.evicted.is_cancelled()));
        assert_eq!(greetings.table().held.len(), PLACES);
        // An evicted connection has no place to free.
        drop(places);
        assert_eq!(greetings.table().held.len(), 1);
        drop(next);
        assert!(greetings.table().held.is_empty());
    }
}
