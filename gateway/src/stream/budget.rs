//! The memory budget of events that wait for clients to read them: one limit for all streams together and a share for
//! each holder. The queue and the replay buffer take from it before they keep an event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::sleep;

use crate::base::share::{Ceiling, Holder, Share, ShareError, ShareLimits, Shares};

/// How often a waiting sender looks for room under the common ceiling: other users of that ceiling notify nobody.
const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The bytes that all event streams together may keep in memory.
#[derive(Debug)]
pub struct StreamBudget {
    shares: Arc<Shares<Holder>>,
    freed: Notify,
}

impl StreamBudget {
    /// A budget of `all` bytes, of which one holder may take `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { shares: Shares::new(all, each), freed: Notify::new() })
    }

    /// As [`Self::new`], with every byte also charged to `ceiling`.
    #[must_use]
    pub fn under(ceiling: &Arc<Ceiling>, all: usize, each: usize) -> Arc<Self> {
        let portions = ShareLimits { all, each, others: HashMap::new() };
        let shares = Shares::under(ceiling, Holder::payer, 0, portions);
        Arc::new(Self { shares, freed: Notify::new() })
    }

    /// Takes a share for an event. An event longer than the share of one holder takes that whole share: it is kept
    /// alone, since it would never fit otherwise.
    ///
    /// # Errors
    /// If the holder's share, the budget or the ceiling has too little left.
    pub fn take(
        self: &Arc<Self>,
        holder: &Holder,
        bytes: usize,
    ) -> Result<BudgetShare, ShareError> {
        let share = self.shares.take(holder, bytes.min(self.shares.each()))?;
        Ok(BudgetShare { share: Some(share), of: Arc::clone(self) })
    }

    /// Whether this holder can take at least one more byte.
    #[must_use]
    pub fn has_room(&self, holder: &Holder) -> bool {
        self.shares.take(holder, 1).is_ok()
    }

    /// A future that resolves when a share is given back after the future was enabled.
    pub fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

/// Resolves after the interval at which senders look again for room that was given back elsewhere under the ceiling.
pub async fn again() {
    sleep(ROOM_CHECK_INTERVAL).await;
}

/// A share of the budget; given back when dropped.
#[derive(Debug)]
#[must_use = "room that is dropped is given back"]
pub struct BudgetShare {
    share: Option<Share<Holder>>,
    of: Arc<StreamBudget>,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        // The share is released before the waiters are woken, so that they find the room.
        drop(self.share.take());
        self.of.freed.notify_waiters();
    }
}

/// The bounds of one stream, and the holder that its bytes are charged to.
#[derive(Clone, Debug)]
pub struct StreamBounds {
    /// Largest number of events.
    pub events: usize,
    /// Largest number of bytes; a single event may be longer.
    pub bytes: usize,
    /// The budget of all streams together.
    pub all: Arc<StreamBudget>,
    /// The holder whose share of the budget is taken.
    pub holder: Holder,
}

#[cfg(test)]
mod tests {
    use super::StreamBudget;
    use crate::base::share::Holder;

    #[test]
    fn an_event_longer_than_a_share_passes_alone() {
        let budget = StreamBudget::new(100, 10);
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
