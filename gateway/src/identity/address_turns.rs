//! Whose turn it is to have an unknown token looked up, among addresses that nobody knows.
//!
//! Turns go round the neighbourhoods of addresses, and within each round its addresses, so that a party with many
//! requests, or many addresses beside each other, is in front of others by one request. When there is no more room to
//! wait, a newcomer takes the place of the last request of the neighbourhood with the most: a few addresses that fill the
//! room keep nobody out.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// How many requests have a turn, or wait for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnBounds {
    /// Most that have a turn.
    pub turns: usize,
    /// Most of one address that have one.
    pub turns_each: usize,
    /// Most that have a turn or wait.
    pub room: usize,
    /// Most of one address.
    pub room_each: usize,
}

/// A network, as [`crate::base::share::network`] has it; `None` is an unknown one.
type Network = Option<IpAddr>;

/// The turns of addresses.
#[derive(Debug)]
pub(super) struct AddressTurns {
    bounds: TurnBounds,
    table: Mutex<TurnTable>,
}

#[derive(Debug, Default)]
struct TurnTable {
    /// How many have a turn.
    running: usize,
    /// How many have a turn or wait.
    count: usize,
    /// Each neighbourhood of which somebody has a turn or waits.
    neighbourhoods: HashMap<Network, Neighbourhood>,
    /// The neighbourhoods of which somebody waits, in the order of their turns.
    order: VecDeque<Network>,
    /// The number of the next request.
    next: u64,
}

#[derive(Debug, Default)]
struct Neighbourhood {
    count: usize,
    lanes: HashMap<Network, Lane>,
    /// The addresses of which somebody waits, in the order of their turns.
    order: VecDeque<Network>,
}

/// The requests of one address.
#[derive(Debug, Default)]
struct Lane {
    running: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    begins: oneshot::Sender<()>,
}

/// A turn, given back when it is dropped.
#[derive(Debug)]
#[must_use = "a turn that is dropped is given back"]
pub(super) struct AddressTurn<'a> {
    turns: &'a AddressTurns,
    network: Network,
}

/// A request that waits; it stops waiting when it is dropped.
struct WaitingRequest<'a> {
    turns: &'a AddressTurns,
    network: Network,
    number: u64,
    begins: oneshot::Receiver<()>,
    is_over: bool,
}

impl AddressTurns {
    /// Turns within these bounds.
    pub(super) fn new(bounds: TurnBounds) -> Self {
        Self { bounds, table: Mutex::default() }
    }

    /// Waits for a turn of `network`. `None` if there is no room to wait, or the room is needed for somebody who has less.
    pub(super) async fn take(&self, network: Network) -> Option<AddressTurn<'_>> {
        let mut waiting = match self.table().enter(network, &self.bounds)? {
            Entered::Turn => return Some(AddressTurn { turns: self, network }),
            Entered::Waits(number, begins) => {
                WaitingRequest { turns: self, network, number, begins, is_over: false }
            }
        };
        let begun = (&mut waiting.begins).await;
        waiting.is_over = true;
        begun.ok().map(|()| AddressTurn { turns: self, network })
    }

    fn table(&self) -> MutexGuard<'_, TurnTable> {
        // No operation leaves the table half changed, so a poisoned lock is usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has a turn or waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let table = self.table();
        table.count == 0 && table.neighbourhoods.is_empty() && table.order.is_empty()
    }
}

impl Drop for AddressTurn<'_> {
    fn drop(&mut self) {
        self.turns.table().end(self.network, &self.turns.bounds);
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut table = self.turns.table();
        table.leave(self.network, self.number);
        // It got its turn just now, and nobody uses it.
        if self.begins.try_recv().is_ok() {
            table.end(self.network, &self.turns.bounds);
        }
    }
}

/// What a request got at once.
enum Entered {
    /// A turn, because there was one.
    Turn,
    /// A place to wait: its number, and what tells that the turn has come.
    Waits(u64, oneshot::Receiver<()>),
}

impl TurnTable {
    fn enter(&mut self, network: Network, bounds: &TurnBounds) -> Option<Entered> {
        let around = neighbourhood(network);
        let (of_lane, of_all) = match self.neighbourhoods.get(&around) {
            None => (0, 0),
            Some(known) => (known.lanes.get(&network).map_or(0, Lane::count), known.count),
        };
        if of_lane >= bounds.room_each || self.count >= bounds.room && !self.displaces(of_all) {
            return None;
        }
        self.count += 1;
        let number = self.next;
        self.next += 1;
        let own = self.neighbourhoods.entry(around).or_default();
        own.count += 1;
        let lane = own.lanes.entry(network).or_default();
        // If it could have a turn, nobody of its address waits for one.
        if self.running < bounds.turns && lane.running < bounds.turns_each {
            self.running += 1;
            lane.running += 1;
            return Some(Entered::Turn);
        }
        let (begins, begun) = oneshot::channel();
        if lane.waiting.is_empty() {
            own.order.push_back(network);
        }
        if own.order.len() == 1 && lane.waiting.is_empty() {
            self.order.push_back(around);
        }
        lane.waiting.push_back(Waiter { number, begins });
        Some(Entered::Waits(number, begun))
    }

    /// Removes the last request of the neighbourhood with the most that wait, for somebody of a neighbourhood with `own`
    /// requests. Returns whether there is one with more than that one would have then.
    fn displaces(&mut self, own: usize) -> bool {
        let waits = |around: &&Network| self.neighbourhoods.get(around);
        let largest = self.order.iter().max_by_key(|around| waits(around).map(|one| one.count));
        let Some(largest) = largest.copied() else { return false };
        let Some(most) = self.neighbourhoods.get(&largest) else { return false };
        if most.count <= own + 1 {
            return false;
        }
        let waiting = |at: &&Network| most.lanes.get(at).map(|lane| lane.waiting.len());
        let lane = most.order.iter().max_by_key(waiting).copied();
        let last = lane.and_then(|at| Some((at, most.lanes.get(&at)?.waiting.back()?.number)));
        last.is_some_and(|(at, number)| self.leave(at, number))
    }

    /// Removes a request that waits. Returns whether it did.
    fn leave(&mut self, network: Network, number: u64) -> bool {
        let around = neighbourhood(network);
        let Some(own) = self.neighbourhoods.get_mut(&around) else { return false };
        let Some(lane) = own.lanes.get_mut(&network) else { return false };
        let before = lane.waiting.len();
        lane.waiting.retain(|waiter| waiter.number != number);
        if lane.waiting.len() == before {
            return false;
        }
        if lane.waiting.is_empty() {
            own.order.retain(|at| *at != network);
        }
        if own.order.is_empty() {
            self.order.retain(|at| *at != around);
        }
        self.uncount(network);
        true
    }

    /// Ends the turn of a request, and begins the next one.
    fn end(&mut self, network: Network, bounds: &TurnBounds) {
        let own = self.neighbourhoods.get_mut(&neighbourhood(network));
        if let Some(lane) = own.and_then(|own| own.lanes.get_mut(&network)) {
            lane.running = lane.running.saturating_sub(1);
            self.running = self.running.saturating_sub(1);
            self.uncount(network);
        }
        while self.running < bounds.turns && self.begin_next(bounds) {}
    }

    /// Begins the turn of the next request whose address may have one. Returns whether there is one.
    fn begin_next(&mut self, bounds: &TurnBounds) -> bool {
        for _ in 0..self.order.len() {
            let Some(around) = self.order.pop_front() else { return false };
            let own = self.neighbourhoods.get_mut(&around);
            let next = own.and_then(|own| {
                let next = own.next(bounds.turns_each);
                if !own.order.is_empty() {
                    self.order.push_back(around);
                }
                next
            });
            let Some((network, waiter)) = next else { continue };
            self.running += 1;
            if waiter.begins.send(()).is_err() {
                // It stops waiting at this moment, and does not know that its turn had come.
                self.running -= 1;
                let own = self.neighbourhoods.get_mut(&around);
                if let Some(lane) = own.and_then(|own| own.lanes.get_mut(&network)) {
                    lane.running -= 1;
                }
                self.uncount(network);
            }
            return true;
        }
        false
    }

    /// Counts one request less, and forgets addresses and neighbourhoods without any.
    fn uncount(&mut self, network: Network) {
        self.count = self.count.saturating_sub(1);
        let around = neighbourhood(network);
        let Some(own) = self.neighbourhoods.get_mut(&around) else { return };
        own.count = own.count.saturating_sub(1);
        if own.lanes.get(&network).is_some_and(|lane| lane.count() == 0) {
            own.lanes.remove(&network);
        }
        if own.lanes.is_empty() {
            self.neighbourhoods.remove(&around);
        }
    }
}

impl Neighbourhood {
    /// Takes the next request of an address that has fewer than `most` turns.
    fn next(&mut self, most: usize) -> Option<(Network, Waiter)> {
        for _ in 0..self.order.len() {
            let network = self.order.pop_front()?;
            let lane = self.lanes.get_mut(&network)?;
            let waiter = match lane.running < most {
                true => lane.waiting.pop_front(),
                false => None,
            };
            if !lane.waiting.is_empty() {
                self.order.push_back(network);
            }
            if let Some(waiter) = waiter {
                lane.running += 1;
                return Some((network, waiter));
            }
        }
        None
    }
}

impl Lane {
    fn count(&self) -> usize {
        self.running + self.waiting.len()
    }
}

/// The addresses that one party is likely to have all of: the first 48 bits of IPv6 (RFC 6177), one address of IPv4.
fn neighbourhood(network: Network) -> Network {
    network.map(|address| match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::IpAddr;
    use std::pin::Pin;

    use futures_util::FutureExt as _;

    use super::{AddressTurn, AddressTurns, Network, TurnBounds};

    const BOUNDS: TurnBounds = TurnBounds { turns: 4, turns_each: 2, room: 8, room_each: 6 };

    fn at(text: &str) -> Network {
        Some(text.parse::<IpAddr>().unwrap())
    }

    type Turn<'a> = Pin<Box<dyn Future<Output = Option<AddressTurn<'a>>> + 'a>>;

    /// A request, and what it got at once: a turn, a refusal, or a place to wait.
    fn asks<'a>(turns: &'a AddressTurns, network: &str) -> (Turn<'a>, &'static str) {
        let mut turn: Turn<'a> = Box::pin(turns.take(at(network)));
        let got = match turn.as_mut().now_or_never() {
            Some(Some(turn)) => {
                // It is held for as long as the request.
                let held = async move { Some(turn) };
                return (Box::pin(held), "turn");
            }
            Some(None) => "refused",
            None => "waits",
        };
        (turn, got)
    }

    #[test]
    fn turns_go_round_the_addresses() {
        let turns = AddressTurns::new(BOUNDS);
        let mut held: Vec<_> = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]
            .map(|from| asks(&turns, from))
            .into_iter()
            .collect();
        assert!(held.iter().all(|(_, got)| *got == "turn"));
        let mut many: Vec<_> = (0..3).map(|_| asks(&turns, "10.0.0.1")).collect();
        let (mut one, got) = asks(&turns, "10.0.0.3");
        assert_eq!(got, "waits");
        // The address of those that wait longest has its share of turns.
        drop(held.pop());
        assert!(one.as_mut().now_or_never().unwrap().is_some());
        assert!(many.iter_mut().all(|(turn, _)| turn.as_mut().now_or_never().is_none()));
        drop(held);
        let begun = many.iter_mut().filter_map(|(turn, _)| turn.as_mut().now_or_never());
        assert_eq!(begun.collect::<Vec<_>>().len(), 2);
        drop((many, one));
        assert!(turns.is_empty());
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_last_of_those_with_the_most() {
        let turns = AddressTurns::new(BOUNDS);
        let mut held: Vec<_> = (0..6).map(|_| asks(&turns, "10.0.0.1")).collect();
        assert_eq!(asks(&turns, "10.0.0.1").1, "refused", "the address has its share");
        let mut others: Vec<_> = (0..2).map(|_| asks(&turns, "10.0.0.2")).collect();
        for n in 3..6 {
            let one = asks(&turns, &format!("10.0.0.{n}"));
            assert_eq!(one.1, "waits", "{n}");
            let refused = held.pop().unwrap().0.as_mut().now_or_never();
            assert!(matches!(refused, Some(None)), "the last of the most is refused");
            others.push(one);
        }
        // Nobody has more than one more than a newcomer would have.
        held.truncate(1);
        others.extend((6..8).map(|n| asks(&turns, &format!("10.0.0.{n}"))));
        drop((held, others));
        assert!(turns.is_empty());
    }

    #[test]
    fn addresses_beside_each_other_are_one_party_in_turns_and_in_room() {
        let turns = AddressTurns::new(BOUNDS);
        let mut beside: Vec<_> =
            (0..8).map(|n| asks(&turns, &format!("2001:db8:1:{n:x}::"))).collect();
        assert_eq!(beside.iter().filter(|(_, got)| *got == "turn").count(), 4);
        assert_eq!(asks(&turns, "2001:db8:1:ff::").1, "refused");
        let (mut other, got) = asks(&turns, "2001:db8:2::");
        assert_eq!(got, "waits");
        drop(beside.remove(0));
        let first = beside.iter_mut().skip(3).find_map(|(turn, _)| turn.as_mut().now_or_never());
        let own = other.as_mut().now_or_never();
        assert!(matches!(first, Some(Some(_))) || matches!(own, Some(Some(_))));
        drop(beside.remove(0));
        assert!(matches!(own, Some(Some(_))) || other.as_mut().now_or_never().is_some());
    }

    #[test]
    fn one_that_stops_waiting_leaves_its_place_and_its_turn() {
        let turns = AddressTurns::new(BOUNDS);
        let held: Vec<_> = (0..2).map(|_| asks(&turns, "10.0.0.1")).collect();
        let (waits, got) = asks(&turns, "10.0.0.1");
        assert_eq!(got, "waits");
        // Its turn comes, and it goes before it has seen that.
        drop(held);
        drop(waits);
        assert!(turns.is_empty());
        let held: Vec<_> = (0..2).map(|_| asks(&turns, "10.0.0.1")).collect();
        drop(asks(&turns, "10.0.0.1"));
        drop(held);
        assert!(turns.is_empty());
    }
}
