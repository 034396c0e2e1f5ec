//! Events that wait for one client that is connected: bounded by their count, by their bytes, and by what
//! the holder and all streams together may keep.
//!
//! A client that comes back for what it missed reads a [`crate::replay::Replay`] instead.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::budget::{Room, Taken};

/// The receiver has gone, or the queue was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads the events any more")]
pub struct Gone;

/// How far a stream of events was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may come, and what was read ends with a whole event.
    Between,
    /// The last event that was read is not whole.
    Within,
    /// All of it was read, and nothing more will come.
    Finished,
}

#[derive(Debug)]
struct Shared {
    room: Room,
    state: Mutex<State>,
    /// Something was read, or the receiver has gone.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(Bytes, Taken)>,
    bytes: usize,
    /// The first of the events is the rest of one of which pieces were read.
    is_begun: bool,
    /// Nothing more will come.
    over: bool,
    /// Nobody reads any more.
    gone: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No operation leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn clear(&mut self) {
        self.events.clear();
        self.bytes = 0;
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A queue with this room.
#[must_use]
pub fn queue(room: Room) -> (Sender, Receiver) {
    let shared = Arc::new(Shared { room, state: Mutex::default(), moved: Notify::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// Where events go. When it is dropped, the receiver gets what is left and then the end.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

impl Sender {
    /// Adds an event when there is room for it.
    ///
    /// # Errors
    /// When nobody will read it.
    pub async fn send(&self, event: Bytes) -> Result<(), Gone> {
        self.wait(event, None).await
    }

    /// The same for one whose room is taken already: what waits to be added is bounded too.
    ///
    /// # Errors
    /// When nobody will read it.
    pub async fn send_taken(&self, event: Bytes, taken: Taken) -> Result<(), Gone> {
        self.wait(event, Some(taken)).await
    }

    /// Room for an event of so many bytes, if the holder and all streams together have it now.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Taken> {
        self.0.room.all.take(&self.0.room.holder, bytes).ok()
    }

    async fn wait(&self, event: Bytes, mut taken: Option<Taken>) -> Result<(), Gone> {
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            let mut freed = std::pin::pin!(self.0.room.all.freed());
            moved.as_mut().enable();
            freed.as_mut().enable();
            if self.add(&event, &mut taken)? {
                return Ok(());
            }
            tokio::select! {
                () = moved => {}
                () = freed => {}
            }
        }
    }

    /// Adds an event if there is room for it; says whether there was.
    ///
    /// # Errors
    /// When nobody will read it.
    pub fn try_send(&self, event: &Bytes) -> Result<bool, Gone> {
        self.add(event, &mut None)
    }

    fn add(&self, event: &Bytes, taken: &mut Option<Taken>) -> Result<bool, Gone> {
        let room = &self.0.room;
        let mut state = self.0.state();
        if state.gone || state.over {
            return Err(Gone);
        }
        let long = !state.events.is_empty() && state.bytes + event.len() > room.bytes;
        if long || state.events.len() >= room.events {
            return Ok(false);
        }
        let Some(taken) = taken.take().or_else(|| self.take(event.len())) else { return Ok(false) };
        state.bytes += event.len();
        state.events.push_back((event.clone(), taken));
        state.wake();
        Ok(true)
    }

    /// Whether everything was read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.state().events.is_empty()
    }

    /// Resolves when nobody reads any more.
    pub async fn closed(&self) {
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            moved.as_mut().enable();
            if self.0.state().gone {
                return;
            }
            moved.await;
        }
    }

    /// Says that nothing more will come: what was not read yet still is.
    pub fn end(&self) {
        let mut state = self.0.state();
        state.over = true;
        state.wake();
    }

    /// Ends the queue now: what was not read yet is not read any more.
    pub fn cut(&self) {
        let mut state = self.0.state();
        state.over = true;
        state.clear();
        state.wake();
        drop(state);
        self.0.moved.notify_waiters();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where events come from.
#[derive(Debug)]
pub struct Receiver(Arc<Shared>);

impl Receiver {
    /// The next event; `None` when no more will come.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some((event, taken)) = state.events.pop_front() {
            state.bytes -= event.len();
            state.is_begun = false;
            drop(state);
            drop(taken);
            self.0.moved.notify_waiters();
            return Poll::Ready(Some(event));
        }
        if state.over {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next piece of at most so many bytes of an event; `None` when no more will come. The room of an event is
    /// taken until its last piece is read: what a connection takes for writing is little, and the rest of a long
    /// event is here until the client reads.
    pub fn poll_piece(&mut self, cx: &Context<'_>, most: usize) -> Poll<Option<Bytes>> {
        let mut state = self.0.state();
        if let Some((event, _taken)) = state.events.front_mut()
            && event.len() > most
        {
            let piece = event.split_to(most);
            state.bytes -= piece.len();
            state.is_begun = true;
            return Poll::Ready(Some(piece));
        }
        drop(state);
        self.poll(cx)
    }

    /// How far the stream was read.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let state = self.0.state();
        match state.events.is_empty() {
            true if state.over => Progress::Finished,
            false if state.is_begun => Progress::Within,
            true | false => Progress::Between,
        }
    }

    /// The next event; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.gone = true;
        state.clear();
        drop(state);
        self.0.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{Gone, Receiver, queue};
    use crate::budget::{Budget, Room};
    use crate::share::Holder;
    use bytes::Bytes;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn room(all: &Arc<Budget>) -> Room {
        let holder = Holder::network([192, 0, 2, 1].into());
        Room { events: 3, bytes: 100, all: Arc::clone(all), holder }
    }

    fn read(receiver: &mut Receiver) -> Option<usize> {
        match receiver.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event.map(|event| event.len()),
            Poll::Pending => Some(0),
        }
    }

    #[test]
    fn events_are_bounded_by_count_and_by_bytes() {
        let budget = Budget::new(1000, 1000);
        let event = |bytes: usize| Bytes::from(vec![b'x'; bytes]);
        let (sender, mut receiver) = queue(room(&budget));
        // A single event may be longer than the stream may keep.
        assert_eq!(sender.try_send(&event(200)), Ok(true));
        assert_eq!(sender.try_send(&event(1)), Ok(false));
        assert_eq!((read(&mut receiver), read(&mut receiver)), (Some(200), Some(0)));
        for _ in 0..3 {
            assert_eq!(sender.try_send(&event(1)), Ok(true));
        }
        assert_eq!(sender.try_send(&event(1)), Ok(false));
        drop(receiver);
        assert_eq!(sender.try_send(&event(1)), Err(Gone));
    }

    #[test]
    fn what_is_not_read_takes_from_the_budget_until_it_is() {
        let budget = Budget::new(50, 50);
        let event = Bytes::from_static(&[b'x'; 40]);
        let (first, mut reading) = queue(room(&budget));
        let (second, _waiting) = queue(room(&budget));
        assert_eq!((first.try_send(&event), second.try_send(&event)), (Ok(true), Ok(false)));
        assert_eq!(read(&mut reading), Some(40));
        assert_eq!(second.try_send(&event), Ok(true));
        second.cut();
        assert_eq!((first.try_send(&event), second.try_send(&event)), (Ok(true), Err(Gone)));
        drop(first);
        assert_eq!((read(&mut reading), read(&mut reading)), (Some(40), None));
    }
}
