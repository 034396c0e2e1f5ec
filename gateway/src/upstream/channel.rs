//! A bidirectional connection to an upstream server, on which both sides send JSON-RPC messages at any time: the
//! standard input and output of a program, or the legacy HTTP+SSE transport.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use policy_core::subject::name::ServerName;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::demux::{ConnectionScope, DeliveryOutcome, Demux, RequestInbox};
use super::error::UpstreamError;
use super::reply::ServerReply;
use super::request::Outgoing;
use super::send_queue::{Awaited, Draft, NotQueued, QueuedMessage, SendQueue};
use super::server_log::ServerLog;
use crate::base::intake::{ResponseAccount, ResponseAccounts};
use crate::base::segments::Segments;
use crate::base::share::Share;
use crate::config::settings::Limits;
use crate::mcp::protocol::method;
use crate::mcp::wire::Message;
use crate::metrics::ServerMetrics;

/// A channel holds at most `max(limits.inFlight, REQUESTS) * REQUESTS_OF_EACH` pending requests.
const REQUESTS: usize = 64;
const REQUESTS_OF_EACH: usize = 4;
/// Interval of checks whether a stalled channel must be given up.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How many calls, one after the other, may time out without a word of the server before the channel is given up. The
/// server has been silent for as many times `limits.responseTimeout` then.
const SILENT_TIMEOUTS: u32 = 3;
/// The maximum number of characters of a method name that are logged.
const MAX_LOGGED_METHOD: usize = 64;

/// The parameters that all channels to one server share.
#[derive(Clone, Debug)]
pub(super) struct ChannelTerms {
    /// The name of the server.
    pub(super) name: ServerName,
    pub(super) limits: Limits,
    pub(super) server_log: Arc<ServerLog>,
    /// The metrics of the server.
    pub(super) counts: Arc<ServerMetrics>,
    /// Memory budget for messages that are being read, and for answers.
    pub(super) response_memory: Arc<ResponseAccounts>,
}

/// A channel to a server.
#[derive(Debug)]
pub(super) struct Channel {
    /// The number of this channel among those opened one after the other.
    pub(super) generation: u64,
    outbox: SendQueue,
    limits: Limits,
    counts: Arc<ServerMetrics>,
    pub(super) demux: Arc<Demux>,
    server_log: Arc<ServerLog>,
    /// The part of its caller's share that it takes until its process has ended.
    held: Option<ChannelShare>,
    /// Cancelled when the channel is to end or has ended.
    pub(super) over: CancellationToken,
    /// The server ended the channel, or caused its end.
    lost: AtomicBool,
    pub(super) answered: AtomicBool,
    pub(super) started: Instant,
    /// When it ended; unset as long as it is open.
    ended: OnceLock<Instant>,
    /// When it was last used, in seconds after `started`.
    used: AtomicU64,
    /// When the server last sent a message, in milliseconds after `started`.
    heard: AtomicU64,
    /// The calls that timed out since then.
    silence: Mutex<SilentTimeouts>,
}

/// Calls that timed out one after the other while the server sent nothing.
#[derive(Debug, Default)]
struct SilentTimeouts {
    count: u32,
    /// When the last of them timed out.
    last: Option<Instant>,
}

/// The server setting that allows the request `asked`, for the log. The client must be able to answer it too.
fn allowed_by(asked: &str) -> Option<&'static str> {
    match asked {
        method::ROOTS => Some("`serverRequests: {roots: {}}` of the server"),
        method::SAMPLE => Some("`serverRequests: {sampling: {}}` of the server"),
        method::ELICIT => Some("`serverRequests: {formElicitation: {}}` of the server"),
        _unknown => None,
    }
}

/// The part of a share that a channel takes. It is released when the last task of the channel ends, which is the one
/// that waits for the exit of the process.
#[derive(Debug)]
pub(super) struct ChannelShare {
    share: Option<Share<Arc<str>>>,
    gone: CancellationToken,
}

impl ChannelShare {
    pub(super) fn new(share: Share<Arc<str>>) -> Self {
        Self { share: Some(share), gone: CancellationToken::new() }
    }
}

impl Drop for ChannelShare {
    fn drop(&mut self) {
        // Released before `gone` is cancelled: a waiter takes the share then.
        drop(self.share.take());
        self.gone.cancel();
    }
}

/// The incoming messages that answer one request.
#[derive(Debug)]
pub(super) struct ChannelAnswer {
    channel: Arc<Channel>,
    /// The JSON-RPC id of the request.
    id: i64,
    inbox: RequestInbox,
    /// When it was sent or queued; `None` for a subscription, whose silence says nothing about calls.
    asked: Option<Instant>,
}

impl Channel {
    /// A channel that `serves` these clients.
    pub(super) fn new(
        generation: u64,
        serves: ConnectionScope,
        terms: &ChannelTerms,
        held: Option<ChannelShare>,
    ) -> Arc<Self> {
        let ChannelTerms { name, limits, server_log, counts, response_memory } = terms;
        let requests = limits.in_flight.max(REQUESTS) * REQUESTS_OF_EACH;
        let (all, each) = (limits.send_queue, limits.send_queue_per_caller);
        Arc::new(Self {
            generation,
            outbox: SendQueue::new(all, each, Arc::clone(counts)),
            limits: *limits,
            counts: Arc::clone(counts),
            demux: Demux::new(serves, requests, name, response_memory, counts),
            server_log: Arc::clone(server_log),
            held,
            over: CancellationToken::new(),
            lost: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            started: Instant::now(),
            ended: OnceLock::new(),
            used: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            silence: Mutex::default(),
        })
    }

    /// Sends a request. Waits at most `at_most` for room in the send queue.
    pub(super) async fn send(
        self: &Arc<Self>,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<ChannelAnswer, UpstreamError> {
        let id = outgoing.id.ok_or(UpstreamError::Protocol("a request needs an id"))?;
        let inbox = self.demux.wait(id, outgoing.takes, outgoing.caller);
        let inbox = inbox.ok_or(UpstreamError::Stalled)?;
        let subscribes = outgoing.method == method::LISTEN;
        let awaited = if subscribes { Awaited::End(id) } else { Awaited::Answer(id) };
        self.queue(outgoing, awaited, at_most).await?;
        let asked = (!subscribes).then(Instant::now);
        Ok(ChannelAnswer { channel: Arc::clone(self), id, inbox, asked })
    }

    /// Sends a notification or a response. Waits at most `at_most` for room in the send queue.
    pub(super) async fn notify(
        &self,
        outgoing: &Outgoing<'_>,
        at_most: Duration,
    ) -> Result<(), UpstreamError> {
        self.queue(outgoing, Awaited::Nothing, at_most).await
    }

    async fn queue(
        &self,
        outgoing: &Outgoing<'_>,
        awaited: Awaited,
        at_most: Duration,
    ) -> Result<(), UpstreamError> {
        self.used.store(self.started.elapsed().as_secs(), Ordering::Relaxed);
        let (body, share) = (outgoing.body.clone(), outgoing.share.clone());
        let draft = Draft { body, awaited, author: outgoing.caller.map(Into::into), share };
        tokio::select! {
            added = self.outbox.add(draft, at_most) => added.map_err(|error| match error {
                NotQueued::Closed => UpstreamError::Exited,
                NotQueued::Full(none) => UpstreamError::SendQueueFull(none),
            }),
            () = self.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// The next message to send; `None` when the channel has ended. Cancel-safe.
    pub(super) async fn next_unsent(&self) -> Option<QueuedMessage> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            next = self.outbox.next() => Some(next),
        }
    }

    /// Notes that the server has read some of the bytes sent to it.
    pub(super) fn moved(&self) {
        self.outbox.moved();
    }

    /// Notes that a message was sent completely, and releases its room.
    pub(super) fn sent(&self, message: QueuedMessage) {
        if let Awaited::Answer(id) = message.awaited {
            self.demux.sent(id);
        }
        drop(message);
    }

    /// Ends the channel; queued messages are dropped.
    pub(super) fn close(&self) {
        self.end();
        self.outbox.close();
    }

    /// Ends the channel, and notes when.
    pub(super) fn end(&self) {
        self.ended.get_or_init(Instant::now);
        self.over.cancel();
    }

    /// When the channel ended; now if that was not noted.
    pub(super) fn ended(&self) -> Instant {
        self.ended.get().copied().unwrap_or_else(Instant::now)
    }

    /// Ends the channel because of the server, which closed its end or is given up for its behaviour. If the channel
    /// has ended before, the earlier reason stays.
    pub(super) fn lose(&self) {
        if !self.over.is_cancelled() {
            self.lost.store(true, Ordering::Relaxed);
            self.end();
        }
    }

    /// Whether the server ended the channel or caused its end.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Resolves when the channel to a server that has read nothing since `since` must be closed. A single-threaded
    /// server does not read while it works, so the channel is closed in two cases: the server sent nothing for
    /// `limits.responseTimeout`, and no call that it received is pending; or messages were refused because its queue is
    /// full, and every call that it received has had `limits.callTimeout`.
    pub(super) async fn stalls(&self, since: Instant) {
        let longest = self.limits.call_timeout.max(self.limits.response_timeout);
        loop {
            sleep(STALL_CHECK_INTERVAL).await;
            let silent = since.max(self.last_heard()).elapsed() >= self.limits.response_timeout;
            let idles = silent && !self.demux.is_at_work();
            if idles || since.elapsed() >= longest && self.outbox.has_refused() {
                return;
            }
        }
    }

    /// Counts and logs that the server does not read what is sent to it.
    pub(super) fn has_stalled(&self) {
        self.counts.stalled();
        let server = self.counts.name();
        tracing::warn!(
            event = "channel.stalled",
            server,
            "channel closed: the server stopped reading"
        );
    }

    /// Notes that a call that was sent at `asked` has timed out, and gives the channel up if the server hangs. Messages that
    /// fit into the pipe are written although nobody reads them, so only the lack of answers shows that.
    fn timed_out(&self, asked: Instant) {
        if self.is_over_silence(asked) && !self.over.is_cancelled() {
            self.lose();
            self.counts.stalled();
            let (server, calls) = (self.counts.name(), SILENT_TIMEOUTS);
            tracing::warn!(
                event = "channel.stalled",
                server,
                calls,
                "channel closed: calls timed out one after the other, and the server sent nothing"
            );
        }
    }

    /// Counts a call that was sent at `asked` and has timed out. Calls under way at the same time count as one. A call that
    /// waits for its client, which the server has asked something, may take longer than the silence: the server may be
    /// waiting for its answer.
    fn is_over_silence(&self, asked: Instant) -> bool {
        let (now, heard) = (Instant::now(), self.last_heard());
        if heard > asked {
            return false;
        }
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        match silence.last {
            Some(last) if heard < last && asked < last => return false,
            Some(last) if heard < last => silence.count += 1,
            Some(_) | None => silence.count = 1,
        }
        silence.last = Some(now);
        let response = self.limits.response_timeout;
        let is_silent = now.duration_since(heard) >= response * SILENT_TIMEOUTS;
        let in_time = now.checked_sub(response * 2);
        let waits = in_time.is_some_and(|begun| self.demux.is_at_work_since(begun));
        silence.count >= SILENT_TIMEOUTS && is_silent && !waits
    }

    fn last_heard(&self) -> Instant {
        self.started + Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    /// When it was last used, to the second.
    pub(super) fn last_used(&self) -> Instant {
        self.started + Duration::from_secs(self.used.load(Ordering::Relaxed))
    }

    /// Cancelled when its part of a share is released, which is when its process has ended.
    pub(super) fn gone(&self) -> Option<CancellationToken> {
        self.held.as_ref().map(|held| held.gone.clone())
    }

    /// Whether it was not used for `age`, and no request waits and no listener is subscribed.
    pub(super) fn is_idle(&self, age: Duration) -> bool {
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(used) >= age && !self.demux.is_busy()
    }

    /// Queues a cancellation or a refusal of the gateway itself, if there is room for it right now.
    fn try_notify(&self, body: Segments) {
        match self.outbox.add_by_itself(body) {
            Ok(()) | Err(NotQueued::Closed) => {}
            Err(error @ NotQueued::Full(_)) => {
                if let Some(suppressed) = self.server_log.allow(Instant::now()) {
                    let (server, error) =
                        (self.counts.name(), crate::base::error_chain::ErrorChain(&error));
                    tracing::warn!(
                        event = "channel.send_failed", server, %error, suppressed,
                        "a cancellation or a refusal was not sent"
                    );
                }
            }
        }
    }

    /// Delivers a message to the request it belongs to, and refuses a server's request that belongs to none.
    pub(super) fn deliver(&self, message: Message, name: &ServerName) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
        if matches!(message, Message::Response(_)) {
            self.answered.store(true, Ordering::Relaxed);
        }
        match self.demux.deliver(message) {
            DeliveryOutcome::Done => {}
            DeliveryOutcome::Unclaimed => self.server_log.progress_dropped(name),
            DeliveryOutcome::Refused(question) => {
                if &*question.method != method::PING
                    && let Some(suppressed) = self.server_log.allow_question(Instant::now())
                {
                    let allowed_by = allowed_by(&question.method);
                    let method: String = question.method.chars().take(MAX_LOGGED_METHOD).collect();
                    let method = method.escape_debug();
                    tracing::warn!(
                        event = "server_request.unattributed", server = %name, %method, suppressed,
                        why = self.demux.serves().refuses(), allowed_by,
                        "server request refused: it cannot be attributed to a call"
                    );
                }
                let why = self.demux.serves().refuses();
                self.try_notify(ServerReply::unasked(&question, why).into_body().into());
            }
            DeliveryOutcome::Stray => {
                if let Some(suppressed) = self.server_log.allow(Instant::now()) {
                    tracing::warn!(
                        event = "server.stray_response", server = %name, suppressed,
                        "response dropped: no request waits for it"
                    );
                }
            }
        }
    }
}

impl ChannelAnswer {
    /// The next message, up to and including the response.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        tokio::select! {
            biased;
            message = self.inbox.next() => {
                message.ok_or(UpstreamError::Exited)?.map_err(UpstreamError::Memory)
            }
            () = self.channel.over.cancelled() => Err(UpstreamError::Exited),
        }
    }

    /// Notes that the server has not answered in time.
    pub(super) fn timed_out(&self) {
        if let Some(asked) = self.asked {
            self.channel.timed_out(asked);
        }
    }

    /// Takes the memory budget of the response, to be kept for as long as its content is used.
    pub(super) const fn received(&mut self) -> Option<ResponseAccount> {
        self.inbox.received()
    }

    /// Abandons the request: withdraws it if sending has not begun, and otherwise sends the notification `cancelled`.
    pub(super) fn cancel(&self, cancelled: Segments) {
        if self.channel.outbox.withdraw(self.id).is_none() {
            self.channel.try_notify(cancelled);
        }
    }
}

impl Drop for ChannelAnswer {
    /// Withdraws a request that no caller waits for.
    fn drop(&mut self) {
        drop(self.channel.outbox.withdraw(self.id));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use bytes::Bytes;
    use policy_core::subject::name::ServerName;
    use tokio::time::{Instant, timeout};

    use super::{Channel, ChannelTerms, STALL_CHECK_INTERVAL};
    use crate::config::settings::Limits;
    use crate::metrics::Metrics;
    use crate::upstream::demux::ConnectionScope;
    use crate::upstream::request::AcceptedMessages;
    use crate::upstream::send_queue::{Awaited, Draft, QueuedMessage};
    use crate::upstream::server_log::ServerLog;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A channel with room for one [`draft`].
    fn channel(response_timeout: Duration, call_timeout: Duration) -> Arc<Channel> {
        let (send_queue, send_queue_per_caller) = (300, 300);
        let usual = Limits::default();
        let limits =
            Limits { response_timeout, call_timeout, send_queue, send_queue_per_caller, ..usual };
        let counts = Metrics::new(SystemTime::UNIX_EPOCH).server("up");
        let terms = ChannelTerms {
            name: ServerName::parse("up").unwrap(),
            limits,
            server_log: ServerLog::new(Arc::clone(&counts)),
            counts,
            response_memory: Arc::default(),
        };
        Channel::new(1, ConnectionScope::Everybody, &terms, None)
    }

    fn draft(id: i64) -> Draft {
        let (body, awaited) = (Bytes::from_static(b"{}").into(), Awaited::Answer(id));
        Draft { body, awaited, author: Some("ana".into()), share: None }
    }

    /// The message of `id`, which is being sent.
    async fn begun(channel: &Channel, id: i64) -> QueuedMessage {
        channel.outbox.add(draft(id), Duration::ZERO).await.unwrap();
        channel.next_unsent().await.unwrap()
    }

    async fn is_given_up(channel: &Channel) -> bool {
        timeout(STALL_CHECK_INTERVAL * 4, channel.stalls(Instant::now())).await.is_ok()
    }

    #[tokio::test]
    async fn a_channel_that_does_not_move_is_given_up_unless_a_call_that_was_sent_is_waited_for() {
        let channel = channel(Duration::ZERO, HOUR);
        let inbox = channel.demux.wait(1, AcceptedMessages::default(), Some("ana"));
        let message = begun(&channel, 1).await;
        // The server cannot work on a message that was not sent completely.
        assert!(is_given_up(&channel).await);
        channel.sent(message);
        assert!(!is_given_up(&channel).await);
        drop(inbox);
        assert!(is_given_up(&channel).await);
    }

    #[tokio::test]
    async fn a_channel_is_not_given_up_before_its_time() {
        assert!(!is_given_up(&channel(HOUR, HOUR)).await);
    }

    #[tokio::test]
    async fn a_channel_that_keeps_messages_out_for_longer_than_a_call_may_take_is_given_up() {
        let channel = channel(Duration::ZERO, Duration::ZERO);
        let _ticket = channel.demux.wait(1, AcceptedMessages::default(), Some("ana"));
        let message = begun(&channel, 1).await;
        channel.sent(message);
        assert!(!is_given_up(&channel).await);
        let _second = begun(&channel, 2).await;
        assert!(channel.outbox.add(draft(3), Duration::ZERO).await.is_err());
        assert!(is_given_up(&channel).await);
        channel.moved();
        assert!(!is_given_up(&channel).await);
    }
}
