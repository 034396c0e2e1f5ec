//! Room for questions to an issuer about tokens that cannot be read here.
//!
//! Anybody can make up a token, and each one costs a question. So a question needs a place before
//! anything is sent, one address has a share of the places, and some are kept for tokens that were
//! good before. A caller waits for its place for a while, which is why these are semaphores and not
//! [`crate::share::Shares`].

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::share::network;

/// Most questions to one issuer at the same time.
const QUESTIONS: usize = 48;
/// So many of them are kept for tokens that were good before.
const RESERVED: usize = 16;
/// Most questions at the same time for one address, and about one token.
const EACH: usize = 16;
/// In how many lanes those who ask are put. Two of them share a lane by chance alone, because the
/// hash that chooses it has a key of its own in every process.
const LANES: usize = 256;
/// How long a caller waits for its place.
const ROOM: Duration = Duration::from_secs(2);

/// For whose sake an issuer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    /// Somebody at this address whose token is not known.
    Address(Option<IpAddr>),
    /// Somebody with this token, which was good before.
    Token([u8; 32]),
}

impl Asker {
    /// Somebody at `address`, or in its network.
    pub(super) fn at(address: Option<IpAddr>) -> Self {
        Self::Address(address.map(network))
    }
}

/// Places for questions to one issuer.
#[derive(Debug)]
pub(super) struct Questions {
    hasher: RandomState,
    lanes: Vec<Semaphore>,
    /// For tokens that are not known.
    new: Semaphore,
    /// For all.
    all: Semaphore,
}

/// The right to ask once; given back when it is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped is given back"]
pub(super) struct Place<'a> {
    _lane: SemaphorePermit<'a>,
    _new: Option<SemaphorePermit<'a>>,
    _all: SemaphorePermit<'a>,
}

impl Questions {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            lanes: (0..LANES).map(|_| Semaphore::new(EACH)).collect(),
            new: Semaphore::new(QUESTIONS - RESERVED),
            all: Semaphore::new(QUESTIONS),
        }
    }

    /// A place, if there is one within a while.
    pub(super) async fn place(&self, asker: Asker) -> Option<Place<'_>> {
        timeout(ROOM, self.turn(asker)).await.ok().flatten()
    }

    async fn turn(&self, asker: Asker) -> Option<Place<'_>> {
        // The share comes first: who waits for its own share keeps no place from others.
        let lane = self.lanes.get(self.lane(&asker))?.acquire().await.ok()?;
        let new = match asker {
            Asker::Address(_) => Some(self.new.acquire().await.ok()?),
            Asker::Token(_) => None,
        };
        let all = self.all.acquire().await.ok()?;
        Some(Place { _lane: lane, _new: new, _all: all })
    }

    fn lane(&self, asker: &impl Hash) -> usize {
        usize::try_from(self.hasher.hash_one(asker) % LANES as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asker, EACH, Place, QUESTIONS, Questions, RESERVED};
    use futures_util::FutureExt as _;
    use std::net::IpAddr;

    fn now(questions: &Questions, asker: Asker) -> Option<Place<'_>> {
        questions.turn(asker).now_or_never().flatten()
    }

    /// Addresses and tokens that share no lane.
    fn apart(questions: &Questions) -> (Vec<Asker>, Vec<Asker>) {
        let mut lanes = Vec::new();
        let mut found = |make: &dyn Fn(u8) -> Asker| -> Vec<Asker> {
            let fresh = |asker: &Asker| {
                let lane = questions.lane(asker);
                let is_fresh = !lanes.contains(&lane);
                lanes.push(lane);
                is_fresh
            };
            (0..u8::MAX).map(make).filter(fresh).take(4).collect()
        };
        let addresses = found(&|n| Asker::at(Some(IpAddr::from([192, 0, 2, n]))));
        (addresses, found(&|n| Asker::Token([n; 32])))
    }

    #[test]
    fn one_address_has_a_share_and_known_tokens_have_room_of_their_own() {
        let questions = Questions::new();
        let (addresses, tokens) = apart(&questions);
        let mut held = Vec::new();
        for address in &addresses[..2] {
            held.extend((0..EACH).map(|_| now(&questions, *address).unwrap()));
            assert!(now(&questions, *address).is_none());
        }
        assert_eq!(held.len(), QUESTIONS - RESERVED);
        assert!(now(&questions, addresses[2]).is_none(), "the rest is for known tokens");
        held.extend((0..RESERVED).map(|_| now(&questions, tokens[0]).unwrap()));
        assert!(now(&questions, tokens[1]).is_none());
        held.clear();
        assert!(now(&questions, addresses[2]).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let at = |text: &str| Asker::at(Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}
