//! Queue of the messages to send on a channel, in order of arrival. Bounded in bytes, for each caller and for all
//! callers together.
//!
//! A request that its caller has given up is withdrawn, unless sending has begun.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::base::segments::Segments;
use crate::base::share::{Holder, Share, ShareError, Shares};
use crate::metrics::ServerMetrics;

/// Overhead in bytes of a queued message. It bounds the number of short messages.
const BESIDE: usize = 256;
/// Budget in bytes for messages of the gateway itself, which do not wait for room: cancellations, and refusals of
/// server requests. Separate from the budget of callers, so that callers cannot exhaust it.
const BY_ITSELF: usize = 1024 * 1024;
/// The number of messages for which an empty queue keeps its memory.
const SPARE: usize = 64;

/// The author of a message: the id of a caller, or `None` for the gateway itself.
pub(super) type Author = Option<Arc<str>>;

/// What the gateway awaits after a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Nothing: it is a notification or a response.
    Nothing,
    /// The response to the request with this id; the server is at work meanwhile.
    Answer(i64),
    /// The end of the subscription with this id; the server is not at work meanwhile.
    End(i64),
}

impl Awaited {
    /// The id of the request, if the message is one.
    const fn request(self) -> Option<i64> {
        match self {
            Self::Nothing => None,
            Self::Answer(id) | Self::End(id) => Some(id),
        }
    }
}

/// The messages that wait to be sent on one channel.
#[derive(Debug)]
pub(super) struct SendQueue {
    /// Budget for the messages of callers, including the one that is being sent.
    bytes: Arc<Shares<Author>>,
    /// Budget for the messages of the gateway itself.
    by_itself: Arc<Shares<Author>>,
    queue: Mutex<SendQueueState>,
    added: Notify,
    freed: Arc<Notify>,
    counts: Arc<ServerMetrics>,
}

#[derive(Debug, Default)]
struct SendQueueState {
    messages: VecDeque<QueuedMessage>,
    /// The channel has ended and sends nothing more.
    is_closed: bool,
    /// A message was refused since the server last read something.
    has_refused: bool,
}

/// A message to be queued.
#[derive(Debug)]
pub(super) struct Draft {
    /// The serialized JSON-RPC message.
    pub(super) body: Segments,
    /// What the gateway awaits after it was sent.
    pub(super) awaited: Awaited,
    /// The caller that caused it.
    pub(super) author: Author,
    /// The part of the caller's share of request bytes that it takes until it is sent.
    pub(super) share: Option<Arc<Share<Holder>>>,
}

/// A message that is queued or being sent. Its room is released on drop.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    /// The serialized JSON-RPC message.
    pub(super) body: Segments,
    /// What the gateway awaits after it was sent.
    pub(super) awaited: Awaited,
    _room: SendReservation,
    _share: Option<Arc<Share<Holder>>>,
}

/// The room that one message takes in the queue.
struct SendReservation {
    share: Option<Share<Author>>,
    /// Bytes, as counted in the metrics.
    bytes: u64,
    freed: Arc<Notify>,
    counts: Arc<ServerMetrics>,
}

impl fmt::Debug for SendReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for SendReservation {
    fn drop(&mut self) {
        // Released before waiting tasks are notified, so that they find the room.
        drop(self.share.take());
        self.counts.sent(self.bytes);
        self.freed.notify_waiters();
    }
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotQueued {
    /// The channel has ended.
    #[error("the channel has ended")]
    Closed,
    /// The budget has no room for it.
    #[error("too many bytes wait to be sent")]
    Full(#[source] ShareError),
}

impl SendQueue {
    /// A queue with room for `all` bytes, of which one caller may use `each`. A longer message takes the whole share
    /// of its caller, because it would never fit otherwise. It exceeds the share only slightly, because a share is at
    /// least `requestBody`.
    pub(super) fn new(all: usize, each: usize, counts: Arc<ServerMetrics>) -> Self {
        Self {
            bytes: Shares::new(all, each),
            by_itself: Shares::new(BY_ITSELF, BY_ITSELF),
            queue: Mutex::default(),
            added: Notify::new(),
            freed: Arc::default(),
            counts,
        }
    }

    fn queue(&self) -> MutexGuard<'_, SendQueueState> {
        // No operation leaves the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message, and waits at most `patience` for room. The message is not queued if the future is dropped
    /// before.
    ///
    /// # Errors
    /// If the channel has ended, or there was no room in time.
    pub(super) async fn add(&self, draft: Draft, patience: Duration) -> Result<(), NotQueued> {
        let (until, mut draft) = (Instant::now() + patience, draft);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            let none = match self.push(&self.bytes, draft) {
                Ok(()) => return Ok(()),
                Err((NotQueued::Closed, _)) => return Err(NotQueued::Closed),
                Err((NotQueued::Full(none), back)) => {
                    draft = back;
                    none
                }
            };
            if timeout_at(until, freed).await.is_err() {
                self.counts.not_queued();
                return Err(NotQueued::Full(none));
            }
        }
    }

    /// Queues a message of the gateway itself, if there is room right now.
    ///
    /// # Errors
    /// If the channel has ended, or there is no room.
    pub(super) fn add_by_itself(&self, body: Segments) -> Result<(), NotQueued> {
        let draft = Draft { body, awaited: Awaited::Nothing, author: None, share: None };
        self.push(&self.by_itself, draft).map_err(|(error, _)| error)
    }

    fn push(&self, shares: &Arc<Shares<Author>>, draft: Draft) -> Result<(), (NotQueued, Draft)> {
        let mut queue = self.queue();
        if queue.is_closed {
            return Err((NotQueued::Closed, draft));
        }
        let length = draft.body.length().saturating_add(BESIDE);
        let share = match shares.take(&draft.author, length.min(shares.limit_of(&draft.author))) {
            Ok(share) => share,
            Err(none) => {
                queue.has_refused = true;
                return Err((NotQueued::Full(none), draft));
            }
        };
        let bytes = length as u64;
        self.counts.queued(bytes);
        let (freed, counts) = (Arc::clone(&self.freed), Arc::clone(&self.counts));
        let room = SendReservation { share: Some(share), bytes, freed, counts };
        let Draft { body, awaited, share, .. } = draft;
        queue.messages.push_back(QueuedMessage { body, awaited, _room: room, _share: share });
        drop(queue);
        self.added.notify_one();
        Ok(())
    }

    /// The next message to send, for the single task that sends. Cancel-safe.
    pub(super) async fn next(&self) -> QueuedMessage {
        loop {
            if let Some(next) = self.first() {
                return next;
            }
            self.added.notified().await;
        }
    }

    fn first(&self) -> Option<QueuedMessage> {
        let mut queue = self.queue();
        let first = queue.messages.pop_front();
        if queue.messages.is_empty() {
            queue.messages.shrink_to(SPARE);
        }
        first
    }

    /// Removes the request `id` from the queue; `None` if its sending has begun or it was never queued.
    pub(super) fn withdraw(&self, id: i64) -> Option<QueuedMessage> {
        let mut queue = self.queue();
        let at = queue.messages.iter().position(|unsent| unsent.awaited.request() == Some(id))?;
        queue.messages.remove(at)
    }

    /// Notes that the server has read something.
    pub(super) fn moved(&self) {
        self.queue().has_refused = false;
    }

    /// Whether a message was refused since the server last read something.
    pub(super) fn has_refused(&self) -> bool {
        self.queue().has_refused
    }

    /// Drops all queued messages and refuses further ones.
    pub(super) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let dropped = std::mem::take(&mut queue.messages);
        drop(queue);
        drop(dropped);
        self.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use bytes::Bytes;

    use super::{Awaited, BESIDE, BY_ITSELF, Draft, NotQueued, SendQueue};
    use crate::base::share::{Holder, ShareError, Shares};
    use crate::metrics::Metrics;

    const LENGTH: usize = 1000;
    const EACH: usize = 2 * (LENGTH + BESIDE);

    fn outbox() -> SendQueue {
        SendQueue::new(2 * EACH, EACH, Metrics::new(SystemTime::UNIX_EPOCH).server("up"))
    }

    fn draft(author: &str, awaited: Awaited, length: usize) -> Draft {
        let body = Bytes::from(vec![b'x'; length]).into();
        Draft { body, awaited, author: Some(author.into()), share: None }
    }

    async fn add(outbox: &SendQueue, author: &str, id: i64) -> Result<(), NotQueued> {
        outbox.add(draft(author, Awaited::Answer(id), LENGTH), Duration::ZERO).await
    }

    #[tokio::test]
    async fn one_caller_leaves_room_for_the_messages_of_others() {
        let outbox = outbox();
        for id in [1, 2] {
            add(&outbox, "ana", id).await.unwrap();
        }
        let over = NotQueued::Full(ShareError::Holder { limit: EACH });
        assert_eq!(add(&outbox, "ana", 3).await, Err(over));
        assert!(outbox.has_refused());
        for id in [4, 5] {
            add(&outbox, "bob", id).await.unwrap();
        }
        let over = NotQueued::Full(ShareError::All { limit: 2 * EACH });
        assert_eq!(add(&outbox, "eve", 6).await, Err(over));
        // What is being sent still takes room.
        let first = outbox.next().await;
        assert_eq!(add(&outbox, "eve", 6).await, Err(over));
        drop(first);
        add(&outbox, "eve", 6).await.unwrap();
        outbox.moved();
        assert!(!outbox.has_refused());
    }

    #[tokio::test]
    async fn a_request_is_withdrawn_until_its_sending_begins() {
        let outbox = outbox();
        let shares = Shares::new(10, 10);
        let holder = Holder::network([192, 0, 2, 1].into());
        let share = Some(Arc::new(shares.take(&holder, 10).unwrap()));
        let counted = Draft { share, ..draft("ana", Awaited::Answer(2), LENGTH) };
        add(&outbox, "ana", 1).await.unwrap();
        outbox.add(counted, Duration::ZERO).await.unwrap();
        let begun = outbox.next().await;
        assert_eq!(begun.awaited, Awaited::Answer(1));
        assert!(outbox.withdraw(1).is_none());
        assert_eq!(shares.taken(), 10);
        assert!(outbox.withdraw(2).is_some() && outbox.withdraw(2).is_none());
        assert_eq!((shares.taken(), outbox.bytes.taken()), (0, LENGTH + BESIDE));
        drop(begun);
        assert_eq!(outbox.bytes.taken(), 0);
    }

    #[tokio::test]
    async fn a_message_that_is_longer_than_a_share_waits_alone() {
        let outbox = outbox();
        outbox.add(draft("ana", Awaited::Nothing, 3 * EACH), Duration::ZERO).await.unwrap();
        assert!(add(&outbox, "ana", 1).await.is_err());
        add(&outbox, "bob", 2).await.unwrap();
    }

    #[tokio::test]
    async fn room_is_waited_for_until_it_is_there_or_the_channel_has_ended() {
        let outbox = outbox();
        for id in [1, 2] {
            add(&outbox, "ana", id).await.unwrap();
        }
        let later =
            |id| outbox.add(draft("ana", Awaited::Answer(id), LENGTH), Duration::from_secs(60));
        // The first of the two is asked first, and finds no room.
        let (added, ()) = tokio::join!(later(3), async { drop(outbox.next().await) });
        assert_eq!(added, Ok(()));
        let (added, ()) = tokio::join!(later(4), async { outbox.close() });
        assert_eq!(added, Err(NotQueued::Closed));
        assert_eq!(outbox.bytes.taken(), 0);
    }

    #[tokio::test]
    async fn what_the_gateway_says_by_itself_has_room_that_callers_cannot_take() {
        let outbox = outbox();
        for (author, id) in [("ana", 1), ("ana", 2), ("bob", 3), ("bob", 4)] {
            add(&outbox, author, id).await.unwrap();
        }
        outbox.add_by_itself(Bytes::from_static(b"cancelled").into()).unwrap();
        let long = Bytes::from(vec![b'x'; BY_ITSELF]).into();
        assert!(matches!(outbox.add_by_itself(long), Err(NotQueued::Full(_))));
    }
}
