//! The GET stream of a legacy session, on which an upstream server sends messages that belong to no call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::streamable_http::HttpAnswer;
use super::{OnBehalfOf, ReplySender, Transport, Upstream, UpstreamError, request};
use crate::base::log_limit::LogLimit;
use crate::base::segments::Segments;
use crate::mcp::protocol::Era;
use crate::mcp::wire::Message;
use crate::net::connection::ConnectionError;
use crate::net::unbuffered::UnbufferedError;
use crate::session::UpstreamSession;

/// The pause before a lost stream is opened again, and the longest such pause.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The time after which the end of a stream is no failure. Well below a minute, after which many proxies end silent
/// streams.
const LASTING: Duration = Duration::from_secs(30);
/// The minimum time between two openings of a stream, even if messages arrived on it.
const SPACING: Duration = Duration::from_millis(250);
/// The maximum number of consecutive events that are no messages, before a stream is abandoned.
const GARBAGE: u32 = 256;
/// How long a stream may be without an event or a comment.
pub(super) const SILENCE: Duration = Duration::from_secs(24 * 3600);
/// Limits the log lines about events that are no messages, for all servers together: a server may send any number.
static UNREAD: LogLimit = LogLimit::new(1, 5);

/// The pause before a stream that was lost `attempts` times in a row is opened again.
pub(super) fn pause(attempts: u32) -> Duration {
    (PAUSE * 2_u32.saturating_pow(attempts.min(10))).min(LONGEST_PAUSE)
}

/// Whether a stream that was opened at `begun` was open for so long that its end is no failure.
fn has_lasted(begun: Instant) -> bool {
    begun.elapsed() > LASTING
}

/// The pauses before a stream is opened again that ends soon each time, or cannot be opened. What arrives on it in
/// between does not shorten them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReopenPacing {
    /// How many times in a row it was lost soon, or could not be opened.
    attempts: u32,
    /// When it was last opened; `None` if that has failed since.
    begun: Option<Instant>,
}

impl ReopenPacing {
    /// Notes that the stream is open.
    pub(super) fn opened(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Waits before the stream is opened again. Cancel-safe.
    pub(super) async fn pause(&mut self) {
        sleep(self.next_pause()).await;
        self.attempts = self.attempts.saturating_add(1);
    }

    fn next_pause(&mut self) -> Duration {
        if self.begun.take().is_some_and(has_lasted) {
            self.attempts = 0;
        }
        pause(self.attempts)
    }
}

/// Whether the server has sent something other than a stream of events over HTTP.
fn is_violation(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Protocol(_) => true,
        UpstreamError::Connection(ConnectionError::Broken(cause)) => {
            cause.downcast_ref().is_some_and(UnbufferedError::is_violation)
        }
        _ => false,
    }
}

/// The GET stream of a legacy session over HTTP. Opened by the first [`Self::next`], because a server may take long
/// to begin it.
///
/// SPEC 2025-11-25 basic/transports#listening-for-messages-from-the-server
#[derive(Debug)]
pub(super) struct SessionStream {
    upstream: Arc<Upstream>,
    on_behalf: OnBehalfOf,
    upstream_session: UpstreamSession,
    answer: Option<Box<HttpAnswer>>,
    /// The id of the last event received.
    last: Option<Box<str>>,
    /// Text of an event that was not parsed yet.
    unread: Option<Segments>,
    /// How many times in a row it was lost without a message.
    attempts: u32,
    /// When it was last opened.
    begun: Option<Instant>,
    /// The number of consecutive events that were no messages.
    garbage: u32,
    /// The server offers no such stream.
    silent: bool,
    /// It was open once, so the server offers it.
    is_offered: bool,
    /// Cancelled once it was opened or is known not to exist.
    opened: CancellationToken,
}

impl SessionStream {
    /// The stream of `upstream_session`; `None` without a session id, since a server offers no stream then.
    pub(super) fn new(
        upstream: &Arc<Upstream>,
        on_behalf: &OnBehalfOf,
        upstream_session: &UpstreamSession,
    ) -> Option<Self> {
        let http = matches!(upstream.transport, Transport::Http(_));
        let legacy = upstream_session.version.era() == Era::Legacy;
        (http && legacy && upstream_session.id.is_some()).then(|| Self {
            upstream: Arc::clone(upstream),
            on_behalf: on_behalf.clone(),
            upstream_session: upstream_session.clone(),
            answer: None,
            last: None,
            unread: None,
            attempts: 0,
            begun: None,
            garbage: 0,
            silent: false,
            is_offered: false,
            opened: CancellationToken::new(),
        })
    }

    /// The next message. A lost stream is opened again and resumes after its last event. Cancel-safe.
    ///
    /// # Errors
    /// If the server no longer knows the session.
    pub(super) async fn next(&mut self) -> Result<Message, UpstreamError> {
        loop {
            if self.silent {
                return std::future::pending().await;
            }
            if self.unread.is_none() {
                self.fetch().await?;
            }
            let (Some(text), Some(answer)) = (self.unread.clone(), &mut self.answer) else {
                self.unread = None;
                continue;
            };
            let read = answer.read(text).await;
            self.unread = None;
            match read {
                Ok(message) => {
                    self.attempts = 0;
                    self.garbage = 0;
                    return Ok(message);
                }
                Err(error) => {
                    self.garbage += 1;
                    if self.garbage > GARBAGE {
                        self.garbage = 0;
                        self.answer = None;
                    }
                    if let Some(suppressed) = UNREAD.allow(Instant::now().into_std()) {
                        let (server, error) =
                            (&self.upstream.name, crate::base::error_chain::ErrorChain(&error));
                        tracing::warn!(
                            event = "server.invalid_message", %server, %error, suppressed,
                            "server sent an event that is not a JSON-RPC message"
                        );
                    }
                }
            }
        }
    }

    async fn fetch(&mut self) -> Result<(), UpstreamError> {
        let Some(answer) = &mut self.answer else { return self.open().await };
        let next = answer.next(Instant::now() + SILENCE, SILENCE).await;
        let lost = answer.lost();
        if let Some((last, _)) = &lost {
            self.last = Some(last.clone());
        }
        match next {
            Ok(Some(text)) => self.unread = Some(text),
            ended @ (Ok(None) | Err(_)) => {
                if let Err(error) = &ended {
                    self.note_violation(error);
                }
                self.answer = None;
                if self.begun.is_some_and(has_lasted) {
                    self.attempts = 0;
                }
                if let Some((_, pause)) = lost {
                    sleep(pause).await;
                }
            }
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<(), UpstreamError> {
        if self.attempts > 0 {
            sleep(pause(self.attempts)).await;
        }
        if let Some(begun) = self.begun {
            sleep_until(begun + SPACING).await;
        }
        self.begun = Some(Instant::now());
        self.attempts += 1;
        let Transport::Http(http) = &self.upstream.transport else {
            self.silent = true;
            return Ok(());
        };
        let opened = http
            .open(
                &request::initialized(&self.on_behalf, &self.upstream_session),
                self.last.as_deref(),
            )
            .await;
        self.opened.cancel();
        match opened {
            Ok(Some(answer)) => (self.answer, self.is_offered) = (Some(answer), true),
            // SPEC: 405 means that there is no such stream. Servers without it also answer 400.
            Ok(None) | Err(UpstreamError::Status(400 | 404)) => self.silent = true,
            Err(UpstreamError::SessionGone) => return Err(UpstreamError::SessionGone),
            Err(error) => {
                self.note_violation(&error);
                let error = crate::base::error_chain::ErrorChain(&error);
                tracing::debug!(server = %self.upstream.name, %error, "no event stream");
            }
        }
        Ok(())
    }

    /// Logs what the server must not have sent: its calls go on, and without a line nobody knows why nothing else comes.
    fn note_violation(&self, error: &UpstreamError) {
        if !is_violation(error) {
            return;
        }
        if let Some(suppressed) = UNREAD.allow(Instant::now().into_std()) {
            let error = crate::base::error_chain::ErrorChain(error);
            tracing::warn!(
                event = "stream.broken", server = %self.upstream.name, %error, suppressed,
                "event stream broken"
            );
        }
    }

    /// Whether the server has offered the stream. Some servers without one answer as if they did not know the session.
    pub(super) const fn is_offered(&self) -> bool {
        self.is_offered
    }

    /// Cancelled once the stream was opened or is known not to exist.
    pub(super) fn opened(&self) -> CancellationToken {
        self.opened.clone()
    }

    pub(super) fn replier(&self) -> ReplySender {
        let upstream = Arc::clone(&self.upstream);
        ReplySender::new(upstream, self.on_behalf.clone(), Some(self.upstream_session.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{LASTING, LONGEST_PAUSE, ReopenPacing};

    #[test]
    fn only_a_stream_that_was_open_for_half_a_minute_makes_the_next_pause_short() {
        let mut pacing = ReopenPacing { attempts: 3, begun: None };
        assert_eq!(pacing.next_pause(), Duration::from_secs(8));
        pacing.opened();
        assert_eq!(pacing.next_pause(), Duration::from_secs(8));
        pacing.begun = Instant::now().checked_sub(LASTING + Duration::from_secs(1));
        assert_eq!(pacing.next_pause(), Duration::from_secs(1));
        pacing.attempts = 30;
        assert_eq!(pacing.next_pause(), LONGEST_PAUSE);
    }
}
