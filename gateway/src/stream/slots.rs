//! The slots of event streams that belong to no call: the GET stream of a legacy session, `subscriptions/listen` and
//! HTTP+SSE.
//!
//! For such a stream the gateway keeps streams to the servers of its route. A client of a legacy session that lost its
//! connection may come back, so these are kept while it is away, and its slot is held as long. A stream whose client is
//! away gives way to a new stream when no slot is free: first those of the same caller, and the one whose client left
//! first. Without that, a caller that opens streams and leaves would hold any number of streams to servers (vector PV-26).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::Instant;
use tracing::field::display;

use crate::base::log_limit::LogLimit;
use crate::base::share::{Holder, Share, ShareError, Shares};
use crate::stream::replay::ReplayBuffer;

/// Limits the log lines about streams that have given way: a caller can cause any number.
static LOGGED: LogLimit = LogLimit::new(1, 5);
/// Memory that one stream to a server takes, in bytes: its task, its connection and what is read ahead of it.
const SERVER_STREAM: usize = 24 * 1024;

/// The slots of all event streams that belong to no call.
#[derive(Debug)]
pub struct EventStreamSlots {
    shares: Arc<Shares<Holder>>,
    /// The bytes that the streams to servers take.
    memory: Arc<Shares<Holder>>,
    /// The streams that a client may come back to, by the id of the stream. There are no more than slots.
    resumable: Mutex<BTreeMap<u64, ResumableStream>>,
}

/// A stream that a client may come back to.
#[derive(Debug)]
struct ResumableStream {
    stream: Arc<ReplayBuffer>,
    slot: Weak<HeldSlot>,
    holder: Holder,
}

/// Slot of an event stream that belongs to no call; given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct EventStreamSlot(Arc<HeldSlot>);

#[derive(Debug)]
struct HeldSlot {
    slots: Arc<EventStreamSlots>,
    /// The id of the stream, if a client may come back to it.
    stream: Mutex<Option<u64>>,
    /// `None` after the stream has given way to another one.
    share: Mutex<Option<SlotShares>>,
}

/// What a stream takes: its place, and the bytes of its streams to servers.
#[derive(Debug)]
struct SlotShares {
    _place: Share<Holder>,
    _memory: Share<Holder>,
}

/// What there is no room for.
enum NoSlot {
    Place(ShareError),
    Memory(ShareError),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No operation on any of the locked values leaves it half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventStreamSlots {
    /// As many slots as there are `shares`, with streams to servers that take their bytes from `memory`.
    #[must_use]
    pub fn new(shares: Arc<Shares<Holder>>, memory: Arc<Shares<Holder>>) -> Arc<Self> {
        Arc::new(Self { shares, memory, resumable: Mutex::default() })
    }

    /// Takes a slot for a stream of a holder for which `servers` are listened to. If there is no room, streams whose clients
    /// are away are ended for it: those of this holder, or of anybody if all slots are taken and the holder has fewer than its
    /// limit.
    ///
    /// # Errors
    /// If all slots or the memory, or the holder's share of one of them, are taken by what is in use.
    pub fn take(
        self: &Arc<Self>,
        holder: &Holder,
        servers: usize,
    ) -> Result<EventStreamSlot, ShareError> {
        loop {
            let none = match self.shares_for(holder, servers) {
                Ok(shares) => return Ok(self.slot(shares)),
                Err(none) => none,
            };
            let may_displace_others = matches!(none, NoSlot::Place(ShareError::All { .. }))
                && self.shares.held(holder) < self.shares.limit_of(holder);
            let is_free = self.displace(|of| of == holder)
                || may_displace_others && self.displace(|_anybody| true);
            if !is_free {
                let (NoSlot::Place(none) | NoSlot::Memory(none)) = none;
                return Err(none);
            }
        }
    }

    fn shares_for(&self, holder: &Holder, servers: usize) -> Result<SlotShares, NoSlot> {
        let place = self.shares.take(holder, 1).map_err(NoSlot::Place)?;
        let bytes = servers.saturating_mul(SERVER_STREAM);
        let memory = self.memory.take(holder, bytes).map_err(NoSlot::Memory)?;
        Ok(SlotShares { _place: place, _memory: memory })
    }

    fn slot(self: &Arc<Self>, shares: SlotShares) -> EventStreamSlot {
        let (stream, share) = (Mutex::default(), Mutex::new(Some(shares)));
        EventStreamSlot(Arc::new(HeldSlot { slots: Arc::clone(self), stream, share }))
    }

    /// Frees the slot of a stream that no client reads, of the holders that `whose` selects: of one that has ended, or else
    /// of the one whose client left first, which ends then. Returns `false` if there is none.
    fn displace(&self, whose: impl Fn(&Holder) -> bool) -> bool {
        let mut resumable = locked(&self.resumable);
        let of_holder = resumable.iter().filter(|(_, one)| whose(&one.holder));
        let unread = of_holder
            .filter_map(|(id, one)| Some((!one.stream.is_over(), one.stream.departure()?, *id)));
        let first = unread.min().and_then(|(_, _, id)| resumable.remove(&id));
        drop(resumable);
        let Some(ResumableStream { stream, slot, holder }) = first else { return false };
        let is_lost = !stream.is_over();
        stream.end();
        if let Some(slot) = slot.upgrade() {
            drop(locked(&slot.share).take());
        }
        if is_lost && let Some(suppressed) = LOGGED.allow(Instant::now().into_std()) {
            let (principal, network) = match &holder {
                Holder::Caller(principal) => (Some(principal.id.as_str()), None),
                Holder::Network(address) => (None, Some(display(*address))),
            };
            tracing::info!(
                event = "stream.displaced",
                principal,
                network,
                suppressed,
                "event stream of a client that is away ended, because another stream needed its slot"
            );
        }
        true
    }

    /// The slot that is held for a stream to which a client may come back; `None` if there is none.
    #[must_use]
    pub fn held_for(&self, stream: &ReplayBuffer) -> Option<EventStreamSlot> {
        locked(&self.resumable).get(&stream.id())?.slot.upgrade().map(EventStreamSlot)
    }
}

impl EventStreamSlot {
    /// Notes that the slot is for `stream`, to which a client of `holder` may come back.
    pub fn hold_for(&self, stream: &Arc<ReplayBuffer>, holder: &Holder) {
        let (slot, stream, holder) = (Arc::downgrade(&self.0), Arc::clone(stream), holder.clone());
        *locked(&self.0.stream) = Some(stream.id());
        let one = ResumableStream { stream, slot, holder };
        locked(&self.0.slots.resumable).insert(one.stream.id(), one);
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let stream = locked(&self.stream).take();
        let removed = stream.and_then(|id| locked(&self.slots.resumable).remove(&id));
        // Nobody adds to the stream any more, and nobody reads it.
        if let Some(removed) = removed {
            removed.stream.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventStreamSlot, EventStreamSlots, SERVER_STREAM};
    use crate::base::share::{Holder, Shares};
    use crate::stream::budget::{StreamBounds, StreamBudget};
    use crate::stream::replay::ReplayBuffer;
    use std::sync::Arc;

    fn holder(last: u8) -> Holder {
        Holder::network([192, 0, 2, last].into())
    }

    /// So many slots, of which each holder may have some, with memory for ten servers.
    fn slots(all: usize, each: usize) -> Arc<EventStreamSlots> {
        EventStreamSlots::new(
            Shares::new(all, each),
            Shares::new(10 * SERVER_STREAM, 10 * SERVER_STREAM),
        )
    }

    /// A stream to which a client may come back, with the slot that it has.
    fn stream(
        slots: &Arc<EventStreamSlots>,
        id: u64,
        of: u8,
    ) -> (Arc<ReplayBuffer>, EventStreamSlot) {
        let all = StreamBudget::new(1 << 20, 1 << 20);
        let room = StreamBounds { events: 4, bytes: 4096, all, holder: holder(of) };
        let stream = ReplayBuffer::new(id, room);
        let slot = slots.take(&holder(of), 1).unwrap();
        slot.hold_for(&stream, &holder(of));
        (stream, slot)
    }

    #[test]
    fn the_stream_whose_client_left_first_gives_way() {
        let slots = slots(9, 3);
        let all = [1, 2, 3].map(|id| stream(&slots, id, 1));
        let [one, two, three] = all.each_ref().map(|(stream, _slot)| stream);
        let readers = [one, two, three].map(|stream| stream.attach(None).unwrap());
        assert!(slots.take(&holder(1), 1).is_err(), "each has its client");
        let [first, second, third] = readers;
        drop((second, first));
        let _new = slots.take(&holder(1), 1).unwrap();
        assert_eq!([one, two, three].map(|stream| stream.is_over()), [false, true, false]);
        // One that a client has come back to stays.
        let back = one.attach(None).unwrap();
        drop(third);
        let _other = slots.take(&holder(1), 1).unwrap();
        assert_eq!([one, two, three].map(|stream| stream.is_over()), [false, true, true]);
        assert!(slots.take(&holder(1), 1).is_err());
        drop(back);
    }

    #[test]
    fn a_stream_that_has_ended_gives_way_before_one_that_goes_on() {
        let slots = slots(9, 2);
        let [(one, _first), (two, _second)] = [1, 2].map(|id| stream(&slots, id, 1));
        drop(one.attach(None));
        drop(two.attach(None));
        two.end();
        let _new = slots.take(&holder(1), 1).unwrap();
        assert!(!one.is_over());
    }

    #[test]
    fn a_stream_ends_with_the_last_who_holds_its_slot() {
        let slots = slots(9, 9);
        let (left, slot) = stream(&slots, 1, 1);
        drop(left.attach(None));
        assert!(!left.is_over());
        drop(slot);
        assert!(left.is_over());
    }

    #[test]
    fn who_is_at_its_own_limit_displaces_nobody_while_there_are_slots() {
        let slots = slots(9, 1);
        let (theirs, _slot) = stream(&slots, 1, 1);
        drop(theirs.attach(None));
        let own = slots.take(&holder(2), 1).unwrap();
        assert!(slots.take(&holder(2), 1).is_err());
        assert!(!theirs.is_over());
        drop(own);
    }

    #[test]
    fn streams_of_others_give_way_only_to_who_is_below_its_limit() {
        let slots = slots(3, 2);
        let (theirs, _slot) = stream(&slots, 1, 1);
        drop(theirs.attach(None));
        let own = [slots.take(&holder(2), 1).unwrap(), slots.take(&holder(2), 1).unwrap()];
        assert!(slots.take(&holder(2), 1).is_err());
        assert!(!theirs.is_over());
        let _new = slots.take(&holder(3), 1).unwrap();
        assert!(theirs.is_over());
        drop(own);
    }

    #[test]
    fn a_slot_is_free_at_once_although_who_held_it_has_not_noticed() {
        let slots = slots(1, 1);
        let (away, held) = stream(&slots, 1, 1);
        drop(away.attach(None));
        let forwarder = held.clone();
        drop(held);
        assert!(slots.held_for(&away).is_some());
        let new = slots.take(&holder(1), 1).unwrap();
        assert!(slots.held_for(&away).is_none());
        drop(forwarder);
        assert!(slots.take(&holder(1), 1).is_err(), "it was given back once");
        drop(new);
        assert!(slots.take(&holder(1), 1).is_ok());
    }

    #[test]
    fn streams_to_servers_take_memory_and_give_way_for_it_as_well() {
        let slots = slots(9, 9);
        let (away, _held) = stream(&slots, 1, 1);
        drop(away.attach(None));
        assert!(slots.take(&holder(2), 10).is_err());
        assert!(!away.is_over(), "not for another caller");
        let new = slots.take(&holder(1), 10).unwrap();
        assert!(away.is_over());
        assert!(slots.take(&holder(1), 1).is_err());
        drop(new);
        assert!(slots.take(&holder(2), 10).is_ok());
    }
}
