//! Shares of a resource that callers compete for: connections, requests, parked calls, bytes of a queue.
//!
//! [`Shares`] counts what is taken in all and by each holder. A part is taken before the work that needs
//! it is begun, and is given back when its [`Share`] is dropped, so no path can forget to.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bounded::Bounded;

/// Which bound refused a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoShare {
    /// Everything there is has been taken.
    #[error("all {limit} are taken")]
    All {
        /// How much there is for everybody.
        limit: usize,
    },
    /// This holder has taken all that one holder may have.
    #[error("one caller has taken its share of {limit}")]
    Holder {
        /// How much one holder may have.
        limit: usize,
    },
}

/// What is taken of one resource, in all and by each holder. The unit (items or bytes) is that of the
/// limits.
pub struct Shares<K> {
    /// What all may take together.
    all: usize,
    /// What one holder may take.
    each: usize,
    taken: AtomicUsize,
    holders: Bounded<K, usize>,
}

impl<K> fmt::Debug for Shares<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.taken.load(Ordering::Relaxed);
        f.debug_struct("Shares")
            .field("all", &self.all)
            .field("each", &self.each)
            .field("taken", &taken)
            .finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Nothing taken of `all`, of which one holder may have `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, taken: AtomicUsize::new(0), holders: Bounded::new(all) })
    }

    /// Takes `amount` for a holder.
    ///
    /// # Errors
    /// When that is more than what is left, or more than the holder may have; then nothing is taken.
    pub fn take(self: &Arc<Self>, holder: &K, amount: usize) -> Result<Share<K>, NoShare> {
        let more = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= self.all);
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            return Err(NoShare::All { limit: self.all });
        }
        let mut granted = false;
        self.holders.update(holder.clone(), |held: usize| {
            let more = held.checked_add(amount).filter(|held| *held <= self.each);
            granted = more.is_some();
            more.unwrap_or(held)
        });
        if granted {
            return Ok(Share { of: Arc::clone(self), holder: holder.clone(), amount });
        }
        self.taken.fetch_sub(amount, Ordering::AcqRel);
        Err(NoShare::Holder { limit: self.each })
    }

    /// How much is taken in all.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

/// What one holder has taken; given back when it is dropped.
#[must_use = "a share that is dropped is given back"]
pub struct Share<K: Clone + Eq + Hash> {
    of: Arc<Shares<K>>,
    holder: K,
    amount: usize,
}

impl<K: Clone + Eq + Hash> fmt::Debug for Share<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.of.holders.update(self.holder.clone(), |held: usize| held.saturating_sub(self.amount));
        self.of.taken.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::{NoShare, Shares};

    #[test]
    fn one_holder_cannot_take_what_is_there_for_others() {
        let shares = Shares::new(4, 3);
        let held: Vec<_> = (0..3).map(|_| shares.take(&"ana", 1).unwrap()).collect();
        assert_eq!(shares.take(&"ana", 1).unwrap_err(), NoShare::Holder { limit: 3 });
        let other = shares.take(&"bob", 1).unwrap();
        assert_eq!(shares.take(&"bob", 1).unwrap_err(), NoShare::All { limit: 4 });
        drop(held);
        assert_eq!(shares.taken(), 1);
        drop(shares.take(&"ana", 3).unwrap());
        drop(other);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn an_amount_that_does_not_fit_takes_nothing() {
        let shares = Shares::new(100, 100);
        let held = shares.take(&1, 60).unwrap();
        assert_eq!(shares.take(&1, 41).unwrap_err(), NoShare::All { limit: 100 });
        assert_eq!(shares.take(&2, usize::MAX).unwrap_err(), NoShare::All { limit: 100 });
        drop(shares.take(&1, 40).unwrap());
        drop(held);
    }
}
