//! Shares of resources that callers compete for: connections, requests, parked calls, bytes of a queue.
//!
//! [`Shares`] counts what is taken in total and by each holder. A share is taken before the work that needs it
//! starts, and is returned when its [`Share`] is dropped, so no code path can leak it.
//!
//! * A [`Holder`] is who takes a share: a caller, or a network.
//! * [`Shares`] is one resource with its limits; [`ShareLimits`] are these limits.
//! * A [`Share`] is the amount that was taken of it.
//! * A [`Ceiling`] is a limit on the bytes of several resources together; a [`Payer`] is who is charged under it.
//! * `Quota` (in the configuration) names a resource in failures; `Quotas` are all resources.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use policy_core::subject::principal::Principal;

use crate::base::bounded::BoundedMap;

/// The smallest IPv6 prefix that a network is assigned (/64, RFC 6177). The network chooses the rest of the address,
/// so all addresses in the prefix are one holder.
const NETWORK: u128 = u128::MAX << 64;

/// The party that takes a share.
#[derive(Clone, Debug)]
pub enum Holder {
    /// An authenticated caller, identified by its principal alone: credentials, clients and connections are not told
    /// apart.
    Caller(Arc<Principal>),
    /// A network, for callers that nothing else distinguishes.
    Network(IpAddr),
}

/// The network of a peer's address, named by its first address. An IPv4 address, mapped or not, is a network of its
/// own.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        address @ IpAddr::V4(_) => address,
    }
}

impl Holder {
    /// The holder for the network of a peer's address.
    #[must_use]
    pub fn network(address: IpAddr) -> Self {
        Self::Network(network(address))
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Caller(one), Self::Caller(two)) => one.id == two.id,
            (Self::Network(one), Self::Network(two)) => one == two,
            (Self::Caller(_), Self::Network(_)) | (Self::Network(_), Self::Caller(_)) => false,
        }
    }
}

impl Eq for Holder {}

impl Hash for Holder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Caller(principal) => (0_u8, &principal.id).hash(state),
            Self::Network(address) => (1_u8, address).hash(state),
        }
    }
}

/// The party that a share is charged to under a [`Ceiling`]. The id of a principal can be an address as well: it is not
/// the network of that address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A caller, by the id of its principal.
    Caller(Arc<str>),
    /// A network, for callers that nothing else distinguishes.
    Network(IpAddr),
}

impl Payer {
    /// The payer for the caller with this id.
    #[must_use]
    pub fn caller(id: &Arc<str>) -> Self {
        Self::Caller(Arc::clone(id))
    }
}

impl Holder {
    /// The party that is charged for this holder under a [`Ceiling`].
    #[must_use]
    pub fn payer(&self) -> Payer {
        match self {
            Self::Caller(principal) => Payer::Caller(principal.id.as_str().into()),
            Self::Network(address) => Payer::Network(*address),
        }
    }
}

/// The bound that refused a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// The total is used up.
    #[error("all {limit} are taken")]
    All {
        /// The limit for all holders together.
        limit: usize,
    },
    /// The holder has all that one holder may have.
    #[error("one caller has taken its share of {limit}")]
    Holder {
        /// The limit of one holder.
        limit: usize,
    },
}

/// A common bound on the bytes taken from several [`Shares`], in total and per payer. Each of them keeps its own bounds
/// as well.
pub type Ceiling = Shares<Payer>;

/// A ceiling, and how shares are charged to it.
struct CeilingCharge<K> {
    ceiling: Arc<Ceiling>,
    /// Maps a holder to the party that is charged.
    payer: fn(&K) -> Payer,
    /// A share of at most this many bytes is not charged to the ceiling.
    light: usize,
}

/// The limits of a resource.
#[derive(Debug)]
pub struct ShareLimits<K> {
    /// The limit for all holders together.
    pub all: usize,
    /// The limit for one holder.
    pub each: usize,
    /// Limits of particular holders, in place of `each`.
    pub others: HashMap<K, usize>,
}

/// Counts what is taken of one resource, in total and by each holder. The unit (items or bytes) is that of the
/// limits.
pub struct Shares<K> {
    /// The limit for all holders together.
    all: usize,
    /// The limit for one holder.
    each: usize,
    /// Limits of particular holders, in place of `each`.
    others: HashMap<K, usize>,
    taken: AtomicUsize,
    holders: BoundedMap<K, usize>,
    under: Option<CeilingCharge<K>>,
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
    /// Makes shares of `all`, of which one holder may have `each`.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Self::with_others(all, each, HashMap::new())
    }

    /// Like [`Self::new`], with limits other than `each` for some holders.
    #[must_use]
    pub fn with_others(all: usize, each: usize, others: HashMap<K, usize>) -> Arc<Self> {
        Arc::new(Self::free(all, each, others))
    }

    fn free(all: usize, each: usize, others: HashMap<K, usize>) -> Self {
        let (taken, holders) = (AtomicUsize::new(0), BoundedMap::new(all));
        Self { all, each, others, taken, holders, under: None }
    }

    /// Makes shares that are charged to `ceiling` as well, to the party that `payer` gives for the holder. A share of at
    /// most `light` bytes is not.
    #[must_use]
    pub fn under(
        ceiling: &Arc<Ceiling>,
        payer: fn(&K) -> Payer,
        light: usize,
        portions: ShareLimits<K>,
    ) -> Arc<Self> {
        let ShareLimits { all, each, others } = portions;
        let under = Some(CeilingCharge { ceiling: Arc::clone(ceiling), payer, light });
        Arc::new(Self { under, ..Self::free(all, each, others) })
    }

    /// The limit of this holder.
    #[must_use]
    pub fn limit_of(&self, holder: &K) -> usize {
        // Most configurations have no particular limits: this saves the hash.
        if self.others.is_empty() {
            return self.each;
        }
        self.others.get(holder).copied().unwrap_or(self.each)
    }

    /// Takes `amount` for a holder.
    ///
    /// # Errors
    /// If it exceeds the total or the holder's limit, here or under the ceiling; then nothing is taken.
    pub fn take(self: &Arc<Self>, holder: &K, amount: usize) -> Result<Share<K>, ShareError> {
        let mut share = self.take_of_own(holder, amount)?;
        share.weigh()?;
        Ok(share)
    }

    /// Like [`Self::take`], without the ceiling.
    fn take_of_own(self: &Arc<Self>, holder: &K, amount: usize) -> Result<Share<K>, ShareError> {
        let more = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= self.all);
        if more(self.taken()).is_none() {
            return Err(ShareError::All { limit: self.all });
        }
        // The holder's part first, so that a holder over its limit does not take from the total meanwhile.
        let (mut granted, limit) = (false, self.limit_of(holder));
        self.holders.update(holder.clone(), |held: usize| {
            let more = held.checked_add(amount).filter(|held| *held <= limit);
            granted = more.is_some();
            more.unwrap_or(held)
        });
        if !granted {
            return Err(ShareError::Holder { limit });
        }
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_err() {
            self.give_back(holder, amount);
            return Err(ShareError::All { limit: self.all });
        }
        Ok(Share { of: Arc::clone(self), holder: holder.clone(), amount, weight: None })
    }

    fn give_back(&self, holder: &K, amount: usize) {
        self.holders.update(holder.clone(), |held: usize| held.saturating_sub(amount));
    }

    /// The amount that a holder has taken.
    #[must_use]
    pub fn held(&self, holder: &K) -> usize {
        self.holders.get(holder).unwrap_or_default()
    }

    /// The limit of a holder that has no particular one.
    #[must_use]
    pub const fn each(&self) -> usize {
        self.each
    }

    /// The amount taken in total.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

/// An amount that a holder has taken; returned on drop.
#[must_use = "a share that is dropped is given back"]
pub struct Share<K: Clone + Eq + Hash> {
    of: Arc<Shares<K>>,
    holder: K,
    amount: usize,
    /// What this share is charged to the ceiling, if there is one.
    weight: Option<Box<Share<Payer>>>,
}

impl<K: Clone + Eq + Hash> fmt::Debug for Share<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl<K: Clone + Eq + Hash> Share<K> {
    /// Takes `more` for the same holder.
    ///
    /// # Errors
    /// As for [`Shares::take`]; what was taken before stays taken.
    pub fn grow(&mut self, more: usize) -> Result<(), ShareError> {
        let mut added = self.of.take_of_own(&self.holder, more)?;
        self.amount += std::mem::take(&mut added.amount);
        self.weigh().inspect_err(|_none| self.give_back(more))
    }

    /// Adjusts the charge to the ceiling to what is held now.
    fn weigh(&mut self) -> Result<(), ShareError> {
        let Some(under) = &self.of.under else { return Ok(()) };
        let wanted = if self.amount > under.light { self.amount } else { 0 };
        match &mut self.weight {
            Some(weight) if wanted > weight.amount => weight.grow(wanted - weight.amount),
            Some(weight) => {
                weight.release(weight.amount - wanted);
                Ok(())
            }
            None if wanted == 0 => Ok(()),
            None => {
                let weight = under.ceiling.take(&(under.payer)(&self.holder), wanted)?;
                self.weight = Some(Box::new(weight));
                Ok(())
            }
        }
    }

    /// Returns `amount`, without adjusting the charge to the ceiling.
    fn give_back(&mut self, amount: usize) {
        self.amount -= amount;
        self.of.taken.fetch_sub(amount, Ordering::AcqRel);
        self.of.give_back(&self.holder, amount);
    }

    /// Returns `amount`, or everything if less is held.
    pub fn release(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        if amount > 0 {
            self.give_back(amount);
        }
        if let Some(weight) = &mut self.weight {
            weight.release(weight.amount.saturating_sub(self.amount));
        }
    }

    /// Adds another share of the same holder, to be returned with this one.
    pub fn join(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
        match (&mut self.weight, other.weight.take()) {
            (Some(weight), Some(more)) => weight.join(*more),
            (weight @ None, more) => *weight = more,
            (Some(_), None) => {}
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        self.release(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::{Holder, Payer, ShareError, ShareLimits, Shares};
    use policy_core::subject::name::PrincipalId;
    use policy_core::subject::principal::Principal;
    use std::sync::Arc;

    #[test]
    fn a_caller_is_one_holder_and_so_is_a_network() {
        let who = |id: &str| {
            let principal = Principal::new(PrincipalId::parse(id).unwrap(), [].into());
            Holder::Caller(Arc::new(principal))
        };
        let at = |address: &str| Holder::network(address.parse().unwrap());
        assert_eq!(who("ana"), who("ana"));
        assert_ne!(who("ana"), who("bob"));
        assert_eq!(at("192.0.2.1"), at("::ffff:192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("2001:db8:0:1::1"), at("2001:db8:0:1:ffff::2"));
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8:0:2::1"));
        let shares = Shares::new(4, 1);
        let held = shares.take(&who("ana"), 1).unwrap();
        assert_eq!(shares.take(&who("ana"), 1).unwrap_err(), ShareError::Holder { limit: 1 });
        drop(held);
        drop(shares.take(&who("ana"), 1).unwrap());
    }

    #[test]
    fn a_principal_that_is_named_like_an_address_does_not_pay_for_its_network() {
        let principal = Principal::new(PrincipalId::parse("192.0.2.1").unwrap(), [].into());
        let caller = Holder::Caller(Arc::new(principal));
        let network = Holder::network("192.0.2.1".parse().unwrap());
        assert_ne!(caller.payer(), network.payer());
        let ceiling = Shares::new(100, 10);
        let portions = ShareLimits { all: 100, each: 100, others: [].into() };
        let shares = Shares::under(&ceiling, Holder::payer, 0, portions);
        let held = shares.take(&network, 10).unwrap();
        drop(shares.take(&caller, 10).unwrap());
        drop(held);
    }

    #[test]
    fn a_share_that_grows_is_given_back_whole() {
        let shares = Shares::new(10, 6);
        let mut held = shares.take(&"ana", 1).unwrap();
        held.grow(5).unwrap();
        assert_eq!(held.grow(1).unwrap_err(), ShareError::Holder { limit: 6 });
        assert_eq!(shares.taken(), 6);
        drop(held);
        assert_eq!(shares.taken(), 0);
        drop(shares.take(&"ana", 6).unwrap());
    }

    #[test]
    fn a_share_can_be_given_back_in_parts() {
        let shares = Shares::new(10, 6);
        let mut held = shares.take(&"ana", 6).unwrap();
        held.release(4);
        assert_eq!(shares.taken(), 2);
        drop(shares.take(&"ana", 4).unwrap());
        held.release(9);
        assert_eq!(shares.taken(), 0);
        drop(held);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn one_holder_cannot_take_what_is_there_for_others() {
        let shares = Shares::new(4, 3);
        let held: Vec<_> = (0..3).map(|_| shares.take(&"ana", 1).unwrap()).collect();
        assert_eq!(shares.take(&"ana", 1).unwrap_err(), ShareError::Holder { limit: 3 });
        let other = shares.take(&"bob", 1).unwrap();
        assert_eq!(shares.take(&"bob", 1).unwrap_err(), ShareError::All { limit: 4 });
        drop(held);
        assert_eq!(shares.taken(), 1);
        drop(shares.take(&"ana", 3).unwrap());
        drop(other);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn some_holders_may_have_more_than_others() {
        let shares = Shares::with_others(8, 1, [("platform", 6)].into());
        let held = shares.take(&"platform", 6).unwrap();
        assert_eq!(shares.take(&"platform", 1).unwrap_err(), ShareError::Holder { limit: 6 });
        let other = shares.take(&"ana", 1).unwrap();
        assert_eq!(shares.take(&"ana", 1).unwrap_err(), ShareError::Holder { limit: 1 });
        drop((held, other));
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn what_several_shares_take_together_stays_under_their_ceiling() {
        let ceiling = Shares::new(100, 60);
        let under = |light| {
            let portions = ShareLimits { all: 90, each: 50, others: [].into() };
            Shares::under(&ceiling, Payer::caller, light, portions)
        };
        let (bodies, answers) = (under(10), under(0));
        let (ana, bob): (Arc<str>, Arc<str>) = ("ana".into(), "bob".into());
        // A light share is not charged; above that limit all of it is.
        let mut body = bodies.take(&ana, 10).unwrap();
        assert_eq!(ceiling.taken(), 0);
        body.grow(30).unwrap();
        assert_eq!(ceiling.taken(), 40);
        assert_eq!(answers.take(&ana, 21).unwrap_err(), ShareError::Holder { limit: 60 });
        let mut answer = answers.take(&ana, 20).unwrap();
        assert_eq!(body.grow(1).unwrap_err(), ShareError::Holder { limit: 60 });
        assert_eq!((bodies.taken(), answers.taken(), ceiling.taken()), (40, 20, 60));
        let other = bodies.take(&bob, 40).unwrap();
        assert_eq!(answers.take(&bob, 1).unwrap_err(), ShareError::All { limit: 100 });
        answer.release(5);
        answer.join(answers.take(&ana, 5).unwrap());
        assert_eq!(ceiling.taken(), 100);
        drop(answer);
        assert_eq!(ceiling.taken(), 80);
        body.release(35);
        assert_eq!(ceiling.taken(), 45);
        drop((body, other));
        assert_eq!((bodies.taken(), answers.taken(), ceiling.taken()), (0, 0, 0));
    }

    #[test]
    fn an_amount_that_does_not_fit_takes_nothing() {
        let shares = Shares::new(100, 100);
        let held = shares.take(&1, 60).unwrap();
        assert_eq!(shares.take(&1, 41).unwrap_err(), ShareError::All { limit: 100 });
        assert_eq!(shares.take(&2, usize::MAX).unwrap_err(), ShareError::All { limit: 100 });
        drop(shares.take(&1, 40).unwrap());
        drop(held);
    }
}
