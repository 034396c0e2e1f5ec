//! The timers of an HTTP/2 connection: for a header list that does not end, a peer that does not respond, and an idle
//! connection.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ConnectionBounds;
use super::frames::FrameMonitor;

/// The timer that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiredTimer {
    /// A header list was not completed in time.
    Head,
    /// A ping was not answered in time.
    Silent,
    /// The connection had no stream for its idle time.
    Idle,
}

/// Whether a connection has open streams. Without one it is idle, and its peer is not pinged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionUse {
    /// At least one stream is open.
    Busy,
    /// No stream is open.
    Idle,
}

impl ConnectionUse {
    pub(super) const fn of(has_streams: bool) -> Self {
        if has_streams { Self::Busy } else { Self::Idle }
    }
}

/// The timers of a connection.
pub(super) struct ConnectionTimers {
    watch: Arc<FrameMonitor>,
    terms: ConnectionBounds,
    /// How long the connection is kept without a stream.
    idle_timeout: Duration,
    /// The last time at which a stream was seen.
    used: Instant,
    pings: Option<PingPong>,
    /// The time of the ping that is not answered yet.
    pinged: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl ConnectionTimers {
    pub(super) fn new(
        watch: Arc<FrameMonitor>,
        terms: ConnectionBounds,
        idle_timeout: Duration,
        pings: Option<PingPong>,
    ) -> Self {
        let used = Instant::now();
        let timer = Box::pin(sleep_until(used + idle_timeout));
        Self { watch, terms, idle_timeout, used, pings, pinged: None, timer }
    }

    /// Restarts the idle time, and sets it to `idle_timeout`.
    pub(super) fn hurry(&mut self, idle_timeout: Duration) {
        self.idle_timeout = idle_timeout;
        self.used = Instant::now();
    }

    /// Ready when a timer has expired; sends pings itself. To be polled after the connection, with its use as it is now.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        connection: ConnectionUse,
    ) -> Poll<ExpiredTimer> {
        if let Some(pings) = self.pings.as_mut().filter(|_| self.pinged.is_some())
            && pings.poll_pong(cx).is_ready()
        {
            self.pinged = None;
        }
        // What a peer has answered is not read while one of its frames is left unread.
        if self.watch.is_held_back() {
            self.pinged = None;
        }
        loop {
            let now = Instant::now();
            if connection == ConnectionUse::Busy {
                self.used = now;
            }
            let (at, due) = self.next(connection);
            if at <= now {
                match due {
                    Some(due) => return Poll::Ready(due),
                    None => self.ping(cx, now),
                }
                continue;
            }
            // A timer that fires too early is set again; one that is set too late would miss the deadline.
            if self.timer.deadline() > at || self.timer.is_elapsed() {
                self.timer.as_mut().reset(at);
            }
            ready!(self.timer.as_mut().poll(cx));
        }
    }

    /// The next deadline and its timer; `None` stands for sending a ping.
    fn next(&self, connection: ConnectionUse) -> (Instant, Option<ExpiredTimer>) {
        let bounds = &self.terms.bounds;
        let next = match (connection, self.pinged) {
            (ConnectionUse::Busy, Some(pinged)) => {
                (pinged + bounds.ping_timeout, Some(ExpiredTimer::Silent))
            }
            (ConnectionUse::Busy, None) => (self.watch.heard() + bounds.ping_interval, None),
            (ConnectionUse::Idle, _) => (self.used + self.idle_timeout, Some(ExpiredTimer::Idle)),
        };
        let list = self.watch.list_began().map(|began| began + self.terms.head_time);
        match list {
            Some(late) if late < next.0 => (late, Some(ExpiredTimer::Head)),
            Some(_) | None => next,
        }
    }

    fn ping(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.pinged = Some(now);
        if let Some(pings) = &mut self.pings {
            // It fails only after the connection has ended, which the connection itself reports.
            drop(pings.send_ping(Ping::opaque()));
            // Registers the waker, so that the answer wakes the task that drives the connection.
            drop(pings.poll_pong(cx));
        }
    }
}
