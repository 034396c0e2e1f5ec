//! The pace at which a recipient is told that the lists of a server have changed.
//!
//! A client that is told fetches the list again, so a server that sends these notifications without pause would make its
//! clients use up their rates. Within an interval one notification of a kind is sent, and the latest of the others follows
//! at its end: no change is lost.

use std::time::{Duration, Instant};

use policy::definition::offer::ItemKind;

use super::subscription::SUBSCRIBABLE_LISTS;

/// The time between two list-changed notifications of a kind for one recipient.
const INTERVAL: Duration = Duration::from_secs(1);

/// The list-changed notifications of one server for one recipient. `N` is a notification.
#[derive(Debug)]
pub struct ListChanges<N> {
    /// One for each of [`SUBSCRIBABLE_LISTS`].
    lists: [PacedList<N>; SUBSCRIBABLE_LISTS.len()],
}

#[derive(Debug)]
struct PacedList<N> {
    /// When the next notification may be sent; `None` if none was sent.
    next: Option<Instant>,
    /// The latest notification that waits for that.
    held: Option<N>,
}

impl<N> Default for ListChanges<N> {
    fn default() -> Self {
        Self { lists: std::array::from_fn(|_| PacedList { next: None, held: None }) }
    }
}

impl<N> ListChanges<N> {
    /// Returns the notification that lists of `kind` have changed if it may be sent now; otherwise keeps it in place of an
    /// earlier one.
    pub fn pass(&mut self, kind: ItemKind, told: N, now: Instant) -> Option<N> {
        // INVARIANT: only kinds of subscribable lists have such a notification; another one is not held back.
        let Some(list) = self.list(kind) else { return Some(told) };
        if list.next.is_some_and(|next| now < next) {
            list.held = Some(told);
            return None;
        }
        list.held = None;
        Some(told)
    }

    /// Notes that a notification of `kind` was sent. Later ones are held back for an interval.
    pub fn sent(&mut self, kind: ItemKind, now: Instant) {
        if let Some(list) = self.list(kind) {
            list.next = Some(now + INTERVAL);
        }
    }

    /// A notification that was held back until now.
    pub fn due(&mut self, now: Instant) -> Option<N> {
        let mut lists = self.lists.iter_mut();
        lists.find_map(|list| list.held.take_if(|_| list.next.is_none_or(|next| next <= now)))
    }

    /// A notification that is held back, before its time: the recipient is told of nothing else afterwards.
    pub fn last(&mut self) -> Option<N> {
        self.lists.iter_mut().find_map(|list| {
            list.next = None;
            list.held.take()
        })
    }

    /// How long the next held notification has to wait; `None` if there is none.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let held = self.lists.iter().filter(|list| list.held.is_some());
        let next = held.filter_map(|list| list.next).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn list(&mut self, kind: ItemKind) -> Option<&mut PacedList<N>> {
        let at = SUBSCRIBABLE_LISTS.iter().position(|listed| *listed == kind)?;
        self.lists.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock as _, SystemClock};

    const KIND: ItemKind = ItemKind::Tool;

    /// Passes a notification, and notes that it was sent if it may be.
    fn send(
        changes: &mut ListChanges<u32>,
        kind: ItemKind,
        told: u32,
        now: Instant,
    ) -> Option<u32> {
        let passed = changes.pass(kind, told, now);
        if passed.is_some() {
            changes.sent(kind, now);
        }
        passed
    }

    #[test]
    fn the_first_is_sent_at_once_and_the_latest_of_the_others_after_an_interval() {
        let (mut changes, begun) = (ListChanges::default(), SystemClock.instant());
        assert_eq!(send(&mut changes, KIND, 0, begun), Some(0));
        assert_eq!(changes.wait(begun), None);
        for told in 1..100 {
            assert_eq!(send(&mut changes, KIND, told, begun), None);
        }
        assert_eq!(changes.due(begun), None);
        assert_eq!(changes.wait(begun), Some(INTERVAL));
        let due = begun + INTERVAL;
        assert_eq!(changes.wait(due), Some(Duration::ZERO));
        assert_eq!(changes.due(due), Some(99));
        assert_eq!(changes.due(due), None);
        assert_eq!(send(&mut changes, KIND, 99, due), Some(99));
        assert_eq!(send(&mut changes, KIND, 100, due), None);
    }

    #[test]
    fn each_kind_has_an_interval_of_its_own() {
        let (mut changes, now) = (ListChanges::default(), SystemClock.instant());
        for kind in SUBSCRIBABLE_LISTS {
            assert_eq!(send(&mut changes, kind, 0, now), Some(0));
        }
        assert_eq!(send(&mut changes, ItemKind::Prompt, 1, now), None);
        assert_eq!(changes.last(), Some(1));
        assert_eq!(changes.last(), None);
        assert_eq!(send(&mut changes, ItemKind::Prompt, 2, now), Some(2));
    }

    #[test]
    fn one_that_was_not_sent_holds_nothing_back() {
        let (mut changes, now) = (ListChanges::default(), SystemClock.instant());
        assert_eq!(changes.pass(KIND, 0, now), Some(0));
        assert_eq!(changes.pass(KIND, 1, now), Some(1));
    }
}
