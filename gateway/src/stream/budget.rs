//! The bytes that wait in memory for clients to read them: a limit for all streams together and a share
//! for each holder.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::sleep;

use crate::base::share::{Ceiling, Holder, NoShare, Portions, Share, Shares};

/// How often room is looked for that others than streams give back: nobody is told of it.
const AGAIN: Duration = Duration::from_millis(100);

/// The bytes that all streams may keep together.
#[derive(Debug)]
pub struct Budget {
    shares: Arc<Shares<Holder>>,
    freed: Notify,
}

impl Budget {
    /// Room for `all` bytes, of which one holder may have `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { shares: Shares::new(all, each), freed: Notify::new() })
    }

    /// The same, where every byte takes of `ceiling` as well.
    #[must_use]
    pub fn under(ceiling: &Arc<Ceiling>, all: usize, each: usize) -> Arc<Self> {
        let portions = Portions { all, each, others: HashMap::new() };
        let shares = Shares::under(ceiling, Holder::payer, 0, portions);
        Arc::new(Self { shares, freed: Notify::new() })
    }

    /// Takes room for an event. One that is longer than the share of a holder takes the whole share:
    /// it passes alone, because it could never pass otherwise.
    ///
    /// # Errors
    /// When there is not so much room now.
    pub fn take(self: &Arc<Self>, holder: &Holder, bytes: usize) -> Result<Taken, NoShare> {
        let share = self.shares.take(holder, bytes.min(self.shares.each()))?;
        Ok(Taken { share: Some(share), of: Arc::clone(self) })
    }

    /// Whether there is room for anything of this holder.
    #[must_use]
    pub fn has_room(&self, holder: &Holder) -> bool {
        self.shares.take(holder, 1).is_ok()
    }

    /// Resolves when room was given back after this was called and enabled.
    pub fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

/// Resolves when it is time to look again for room that others than streams have given back.
pub async fn again() {
    sleep(AGAIN).await;
}

/// Room that was taken; given back when it is dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is given back"]
pub struct Taken {
    share: Option<Share<Holder>>,
    of: Arc<Budget>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Given back before anybody who waits for it looks.
        drop(self.share.take());
        self.of.freed.notify_waiters();
    }
}

/// How much one stream keeps, and for whom.
#[derive(Clone, Debug)]
pub struct Room {
    /// Most events.
    pub events: usize,
    /// Most bytes; a single event may be longer.
    pub bytes: usize,
    /// What all streams keep together.
    pub all: Arc<Budget>,
    /// Whose part of that it is.
    pub holder: Holder,
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use crate::base::share::Holder;

    #[test]
    fn an_event_longer_than_a_share_passes_alone() {
        let budget = Budget::new(100, 10);
        let holder = Holder::network([192, 0, 2, 1].into());
        let small = budget.take(&holder, 1).unwrap();
        assert!(budget.take(&holder, 50).is_err());
        drop(small);
        let long = budget.take(&holder, 50).unwrap();
        assert!(!budget.has_room(&holder));
        assert!(budget.has_room(&Holder::network([192, 0, 2, 2].into())));
        drop(long);
        assert!(budget.has_room(&holder));
    }
}
