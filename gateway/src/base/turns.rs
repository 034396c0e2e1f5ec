//! Whose turn it is to ask a service that answers only so many at once.
//!
//! A caller waits for its own places first, and then in the order of arrival for one of all: however many of its requests
//! wait, they are in front of others by no more than its places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Entries of callers that do not wait any more are looked for from so many on.
const SWEPT_FROM: usize = 64;

/// The places at one service.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    each: usize,
    callers: Mutex<CallerTurns>,
}

#[derive(Debug)]
struct CallerTurns {
    places: HashMap<Box<str>, Weak<Semaphore>>,
    /// How many entries there may be until the unused ones are dropped.
    sweep_at: usize,
}

/// A place at a service, for as long as it is held.
#[derive(Debug)]
pub struct Turn {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// So many places, of which one caller may have `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Self {
        let callers = CallerTurns { places: HashMap::new(), sweep_at: SWEPT_FROM };
        Self { all: Arc::new(Semaphore::new(all)), each, callers: Mutex::new(callers) }
    }

    /// Waits for a place. Dropping the future gives up waiting.
    pub async fn take(&self, caller: &str) -> Option<Turn> {
        let own = self.places_of(caller);
        // INVARIANT: neither is ever closed.
        let of_caller = own.acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Turn { _of_caller: of_caller, _of_all: of_all })
    }

    fn places_of(&self, caller: &str) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.places.get(caller).and_then(Weak::upgrade) {
            return known;
        }
        if callers.places.len() >= callers.sweep_at {
            callers.places.retain(|_, places| places.strong_count() > 0);
            callers.sweep_at = SWEPT_FROM.max(2 * callers.places.len());
        }
        let new = Arc::new(Semaphore::new(self.each));
        callers.places.insert(caller.into(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{SWEPT_FROM, Turns};

    #[tokio::test]
    async fn a_caller_with_all_its_places_leaves_the_others() {
        let turns = Turns::new(3, 2);
        let soon = |caller: &'static str| timeout(Duration::from_millis(20), turns.take(caller));
        let (one, two) = (soon("ana").await.unwrap(), soon("ana").await.unwrap());
        assert!(soon("ana").await.is_err());
        let three = soon("bob").await.unwrap();
        assert!(soon("bob").await.is_err(), "all are taken");
        drop(one);
        assert!(soon("ana").await.is_ok());
        drop((two, three));
    }

    #[tokio::test]
    async fn callers_that_do_not_wait_are_forgotten() {
        let turns = Turns::new(1, 1);
        for n in 0..10 * SWEPT_FROM {
            assert!(turns.take(&n.to_string()).await.is_some());
        }
        let callers = turns.callers.lock().unwrap();
        assert!(callers.places.len() <= SWEPT_FROM);
    }
}
