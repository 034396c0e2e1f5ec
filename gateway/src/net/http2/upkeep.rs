//! How long a connection may stand still: a list of headers that does not end, a peer that has gone without
//! a word, and a connection that nobody uses.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use super::Terms;
use super::frames::Watch;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A list of headers takes too long.
    Head,
    /// A ping was not answered.
    Silent,
    /// There was no stream for as long as a connection is kept without one.
    Idle,
}

/// The timers of a connection.
pub(super) struct Upkeep {
    watch: Arc<Watch>,
    terms: Terms,
    /// How long the connection is kept without a stream.
    idle_time: Duration,
    /// When there was last seen to be a stream.
    used: Instant,
    pings: Option<PingPong>,
    /// When the ping was sent that is not answered yet.
    pinged: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Upkeep {
    pub(super) fn new(
        watch: Arc<Watch>,
        terms: Terms,
        idle_time: Duration,
        pings: Option<PingPong>,
    ) -> Self {
        let used = Instant::now();
        let timer = Box::pin(sleep_until(used + idle_time));
        Self { watch, terms, idle_time, used, pings, pinged: None, timer }
    }

    /// From now on the connection is kept for only so long without a stream.
    pub(super) fn hurry(&mut self, idle_time: Duration) {
        self.idle_time = idle_time;
        self.used = Instant::now();
    }

    /// Ready when something is due; pings the peer on its own. To be polled after the connection, which says
    /// whether it has `streams`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, streams: bool) -> Poll<Due> {
        if let Some(pings) = self.pings.as_mut().filter(|_| self.pinged.is_some())
            && pings.poll_pong(cx).is_ready()
        {
            self.pinged = None;
        }
        loop {
            let now = Instant::now();
            if streams {
                self.used = now;
            }
            let (at, due) = self.next(streams);
            if at <= now {
                match due {
                    Some(due) => return Poll::Ready(due),
                    None => self.ping(cx, now),
                }
                continue;
            }
            // A timer that is early looks again; one that is late would be missed.
            if self.timer.deadline() > at || self.timer.is_elapsed() {
                self.timer.as_mut().reset(at);
            }
            ready!(self.timer.as_mut().poll(cx));
        }
    }

    /// When the next thing is due; without a name it is a ping.
    fn next(&self, streams: bool) -> (Instant, Option<Due>) {
        let bounds = &self.terms.bounds;
        let next = match self.pinged.filter(|_| streams) {
            Some(pinged) => (pinged + bounds.ping_timeout, Some(Due::Silent)),
            None if streams => (self.watch.heard() + bounds.ping_time, None),
            None => (self.used + self.idle_time, Some(Due::Idle)),
        };
        let list = self.watch.list_began().map(|began| began + self.terms.head_time);
        match list {
            Some(late) if late < next.0 => (late, Some(Due::Head)),
            Some(_) | None => next,
        }
    }

    fn ping(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.pinged = Some(now);
        if let Some(pings) = &mut self.pings {
            // It fails where the connection has ended, which the connection says itself.
            drop(pings.send_ping(Ping::opaque()));
            // Registers the waker: the answer wakes the task that drives the connection.
            drop(pings.poll_pong(cx));
        }
    }
}
