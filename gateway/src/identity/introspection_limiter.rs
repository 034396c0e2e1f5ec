//! Bounds the introspection requests to an issuer.
//!
//! Anyone can make up an opaque token, and each one costs a request. A request therefore needs a permit before
//! anything is sent, one address has a share of the permits, and some are reserved for tokens that were valid before.
//! Callers wait for a permit for a short time, which is why these are semaphores and not
//! [`crate::base::share::Shares`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::base::share::network;

/// Maximum number of concurrent requests to one issuer.
const QUESTIONS: usize = 48;
/// Number of these that are reserved for tokens that were valid before.
const RESERVED: usize = 16;
/// Maximum number of concurrent requests for one address, and about one token.
const EACH: usize = 16;
/// Maximum number of requests with unknown tokens that hold a permit or wait for one: of one address, and of all. Each also
/// takes room that known callers need.
const WAITING_EACH: usize = 128;
const WAITING: usize = 2 * WAITING_EACH;
/// Maximum time to wait for a permit.
const ROOM: Duration = Duration::from_secs(2);

/// The party that a request is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum IntrospectionHolder {
    /// A network with an unknown token.
    Address(Option<IpAddr>),
    /// A token that was valid before, by its SHA-256.
    Token([u8; 32]),
}

impl IntrospectionHolder {
    /// The network of `address`.
    pub(super) fn at(address: Option<IpAddr>) -> Self {
        Self::Address(address.map(network))
    }
}

/// The permits for requests to one issuer.
#[derive(Debug)]
pub(super) struct IntrospectionLimiter {
    /// The permits of each asker that holds or awaits one: no more than there are requests.
    lanes: Mutex<HashMap<IntrospectionHolder, HolderLane>>,
    /// Room to hold or await a permit for an unknown token.
    waiting: Semaphore,
    /// Permits for unknown tokens.
    new: Semaphore,
    /// Permits for all tokens.
    all: Semaphore,
}

/// The permits of one asker.
#[derive(Debug)]
struct HolderLane {
    places: Arc<Semaphore>,
    /// Number of requests that hold or await a permit in it.
    users: usize,
}

/// A request in the lane of its asker; the lane is removed with its last request.
#[derive(Debug)]
struct LaneGuard<'a> {
    questions: &'a IntrospectionLimiter,
    asker: IntrospectionHolder,
    places: Arc<Semaphore>,
}

/// A permit for one request, returned on drop.
#[derive(Debug)]
#[must_use = "a place that is dropped is given back"]
pub(super) struct IntrospectionSlot<'a> {
    _of_asker: OwnedSemaphorePermit,
    _waiting: Option<SemaphorePermit<'a>>,
    _lane: LaneGuard<'a>,
    _new: Option<SemaphorePermit<'a>>,
    _all: SemaphorePermit<'a>,
}

impl IntrospectionLimiter {
    pub(super) fn new() -> Self {
        Self {
            lanes: Mutex::default(),
            waiting: Semaphore::new(WAITING),
            new: Semaphore::new(QUESTIONS - RESERVED),
            all: Semaphore::new(QUESTIONS),
        }
    }

    /// Waits for a permit for a bounded time; `None` as well if too many wait already.
    pub(super) async fn place(&self, asker: IntrospectionHolder) -> Option<IntrospectionSlot<'_>> {
        timeout(ROOM, self.turn(asker)).await.ok().flatten()
    }

    async fn turn(&self, asker: IntrospectionHolder) -> Option<IntrospectionSlot<'_>> {
        // The asker's own share comes first, so that a request that waits for it holds no common permit.
        let lane = self.enter(asker)?;
        let waiting = match asker {
            IntrospectionHolder::Address(_) => Some(self.waiting.try_acquire().ok()?),
            IntrospectionHolder::Token(_) => None,
        };
        let of_asker = Arc::clone(&lane.places).acquire_owned().await.ok()?;
        let new = match asker {
            IntrospectionHolder::Address(_) => Some(self.new.acquire().await.ok()?),
            IntrospectionHolder::Token(_) => None,
        };
        let all = self.all.acquire().await.ok()?;
        Some(IntrospectionSlot {
            _of_asker: of_asker,
            _waiting: waiting,
            _lane: lane,
            _new: new,
            _all: all,
        })
    }

    fn enter(&self, asker: IntrospectionHolder) -> Option<LaneGuard<'_>> {
        let mut lanes = self.lanes();
        let new = || HolderLane { places: Arc::new(Semaphore::new(EACH)), users: 0 };
        let lane = lanes.entry(asker).or_insert_with(new);
        // Requests with a known token are those of a known caller.
        if matches!(asker, IntrospectionHolder::Address(_)) && lane.users >= WAITING_EACH {
            return None;
        }
        lane.users += 1;
        Some(LaneGuard { questions: self, asker, places: Arc::clone(&lane.places) })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<IntrospectionHolder, HolderLane>> {
        // No operation leaves the table half changed, so a poisoned lock is usable.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LaneGuard<'_> {
    fn drop(&mut self) {
        let mut lanes = self.questions.lanes();
        if let Some(lane) = lanes.get_mut(&self.asker) {
            lane.users -= 1;
            if lane.users == 0 {
                lanes.remove(&self.asker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        EACH, IntrospectionHolder, IntrospectionLimiter, IntrospectionSlot, QUESTIONS, RESERVED,
        WAITING, WAITING_EACH,
    };
    use futures_util::FutureExt as _;
    use std::net::IpAddr;

    fn now(
        questions: &IntrospectionLimiter,
        asker: IntrospectionHolder,
    ) -> Option<IntrospectionSlot<'_>> {
        questions.turn(asker).now_or_never().flatten()
    }

    #[test]
    fn one_address_has_a_share_and_known_tokens_have_room_of_their_own() {
        let questions = IntrospectionLimiter::new();
        let addresses =
            [1, 2, 3].map(|n| IntrospectionHolder::at(Some(IpAddr::from([192, 0, 2, n]))));
        let tokens = [1, 2].map(|n| IntrospectionHolder::Token([n; 32]));
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
        assert!(questions.lanes().is_empty(), "nothing is kept of those who do not ask");
    }

    #[test]
    fn so_many_wait_and_the_others_are_refused_at_once() {
        let questions = IntrospectionLimiter::new();
        let waiting = |n: u8| {
            let at = IntrospectionHolder::at(Some(IpAddr::from([192, 0, 2, n])));
            let mut turn = Box::pin(questions.turn(at));
            let came = turn.as_mut().now_or_never();
            (turn, came)
        };
        let mut held = Vec::new();
        for address in 0..2 {
            held.extend((0..WAITING_EACH).map(|_| waiting(address)));
            assert!(matches!(waiting(address).1, Some(None)), "the address has its share");
        }
        assert_eq!(held.len(), WAITING);
        assert!(matches!(waiting(9).1, Some(None)), "all room to wait is taken");
        let known = IntrospectionHolder::Token([1; 32]);
        let mut turns: Vec<_> =
            (0..=WAITING_EACH).map(|_| Box::pin(questions.turn(known))).collect();
        for turn in &mut turns {
            assert!(!matches!(turn.as_mut().now_or_never(), Some(None)), "a known token waits");
        }
        drop(turns);
        held.clear();
        assert!(matches!(waiting(9).1, Some(Some(_))));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let at = |text: &str| IntrospectionHolder::at(Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}
