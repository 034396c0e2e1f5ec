//! Bounds the introspection requests to an issuer.
//!
//! Anyone can make up an opaque token, and each one costs a request. A request therefore needs a permit before
//! anything is sent, addresses take [turns](super::address_turns), and some permits are reserved for tokens that were
//! valid before. Callers wait for a permit for a short time, which is why these are semaphores and not
//! [`crate::base::share::Shares`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::address_turns::{AddressTurn, AddressTurns, TurnBounds};
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
    /// The permits of each known token that holds or awaits one: no more than there are requests.
    lanes: Mutex<HashMap<[u8; 32], TokenLane>>,
    /// The turns of unknown tokens.
    new: AddressTurns,
    /// Permits for all tokens.
    all: Semaphore,
}

/// The permits of one known token.
#[derive(Debug)]
struct TokenLane {
    places: Arc<Semaphore>,
    /// Number of requests that hold or await a permit in it.
    users: usize,
}

/// A request in the lane of its token; the lane is removed with its last request.
#[derive(Debug)]
struct LaneGuard<'a> {
    questions: &'a IntrospectionLimiter,
    token: [u8; 32],
    places: Arc<Semaphore>,
}

/// A permit for one request, returned on drop.
#[derive(Debug)]
#[must_use = "a place that is dropped is given back"]
pub(super) struct IntrospectionSlot<'a> {
    _share: AskerShare<'a>,
    _all: SemaphorePermit<'a>,
}

/// What a request takes of the share of its asker.
#[derive(Debug)]
enum AskerShare<'a> {
    Address { _turn: AddressTurn<'a> },
    Token { _place: OwnedSemaphorePermit, _lane: LaneGuard<'a> },
}

impl IntrospectionLimiter {
    pub(super) fn new() -> Self {
        Self {
            lanes: Mutex::default(),
            new: AddressTurns::new(TurnBounds {
                turns: QUESTIONS - RESERVED,
                turns_each: EACH,
                room: WAITING,
                room_each: WAITING_EACH,
            }),
            all: Semaphore::new(QUESTIONS),
        }
    }

    /// Waits for a permit for a bounded time; `None` as well if too many wait already.
    pub(super) async fn place(&self, asker: IntrospectionHolder) -> Option<IntrospectionSlot<'_>> {
        timeout(ROOM, self.turn(asker)).await.ok().flatten()
    }

    async fn turn(&self, asker: IntrospectionHolder) -> Option<IntrospectionSlot<'_>> {
        // The asker's own share comes first, so that a request that waits for it holds no common permit.
        let share = match asker {
            IntrospectionHolder::Address(network) => {
                AskerShare::Address { _turn: self.new.take(network).await? }
            }
            IntrospectionHolder::Token(token) => {
                let lane = self.enter(token);
                let place = Arc::clone(&lane.places).acquire_owned().await.ok()?;
                AskerShare::Token { _place: place, _lane: lane }
            }
        };
        let all = self.all.acquire().await.ok()?;
        Some(IntrospectionSlot { _share: share, _all: all })
    }

    /// Requests with a known token are those of a known caller, so any number of them waits.
    fn enter(&self, token: [u8; 32]) -> LaneGuard<'_> {
        let mut lanes = self.lanes();
        let new = || TokenLane { places: Arc::new(Semaphore::new(EACH)), users: 0 };
        let lane = lanes.entry(token).or_insert_with(new);
        lane.users += 1;
        LaneGuard { questions: self, token, places: Arc::clone(&lane.places) }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<[u8; 32], TokenLane>> {
        // No operation leaves the table half changed, so a poisoned lock is usable.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LaneGuard<'_> {
    fn drop(&mut self) {
        let mut lanes = self.questions.lanes();
        if let Some(lane) = lanes.get_mut(&self.token) {
            lane.users -= 1;
            if lane.users == 0 {
                lanes.remove(&self.token);
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
        assert!(questions.lanes().is_empty() && questions.new.is_empty(), "nothing is kept");
    }

    #[test]
    fn so_many_wait_and_leave_room_to_others_and_to_known_tokens() {
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
        assert!(waiting(9).1.is_none(), "who has less than others has room");
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
