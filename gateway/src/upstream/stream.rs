//! The stream of a legacy session: what its server says that belongs to no call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::streamable_http::HttpAnswer;
use super::{Party, Replier, Transport, Upstream, UpstreamError, request};
use crate::base::log_limit::LogLimit;
use crate::mcp::protocol::Era;
use crate::mcp::wire::Message;
use crate::session::Leg;

/// The pause before a lost stream is opened again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The least time between two openings of a stream, also of one that had something to say.
const SPACING: Duration = Duration::from_millis(250);
/// Most events in a row that are no messages, before a stream is broken off.
const GARBAGE: u32 = 256;
/// How long a stream may be without a word or a sign of life.
pub(super) const SILENCE: Duration = Duration::from_secs(24 * 3600);
/// Log lines about events that are no messages, of all servers: a server sends as many as it likes.
static UNREAD: LogLimit = LogLimit::new(1, 5);

/// How long to wait before a stream that was lost `attempts` times in a row is opened again.
pub(super) fn pause(attempts: u32) -> Duration {
    (PAUSE * 2_u32.saturating_pow(attempts.min(10))).min(LONGEST_PAUSE)
}

/// The stream of a legacy session over HTTP. A server may take its time to begin it, so it is
/// opened when something is wanted of it.
///
/// SPEC 2025-11-25 basic/transports#listening-for-messages-from-the-server
#[derive(Debug)]
pub(super) struct Stream {
    upstream: Arc<Upstream>,
    party: Party,
    leg: Leg,
    answer: Option<Box<HttpAnswer>>,
    /// The last event that came.
    last: Option<Box<str>>,
    /// What has come and was not read yet.
    unread: Option<bytes::Bytes>,
    /// How often in a row it was lost without a word.
    attempts: u32,
    /// When it was last opened.
    begun: Option<Instant>,
    /// How many events in a row were no messages.
    garbage: u32,
    /// The server has no such stream.
    silent: bool,
    /// It was opened, or will not be.
    opened: CancellationToken,
}

impl Stream {
    /// The stream of `leg`; `None` where sessions have no id, and so no stream.
    pub(super) fn new(upstream: &Arc<Upstream>, party: &Party, leg: &Leg) -> Option<Self> {
        let http = matches!(upstream.transport, Transport::Http(_));
        let legacy = leg.version.era() == Era::Legacy;
        (http && legacy && leg.id.is_some()).then(|| Self {
            upstream: Arc::clone(upstream),
            party: party.clone(),
            leg: leg.clone(),
            answer: None,
            last: None,
            unread: None,
            attempts: 0,
            begun: None,
            garbage: 0,
            silent: false,
            opened: CancellationToken::new(),
        })
    }

    /// The next message. A stream that is lost is opened again and goes on where it was lost. May
    /// be given up and called again.
    ///
    /// # Errors
    /// When the server does not know the session any more.
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
                            (&self.upstream.name, crate::base::error_chain::Chain(&error));
                        tracing::warn!(%server, %error, suppressed, "not a message");
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
                if let Err(error @ UpstreamError::Protocol(_)) = &ended
                    && let Some(suppressed) = UNREAD.allow(Instant::now().into_std())
                {
                    tracing::warn!(server = %self.upstream.name, %error, suppressed, "a stream was broken off");
                }
                self.answer = None;
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
        let opened =
            http.open(&request::initialized(&self.party, &self.leg), self.last.as_deref()).await;
        self.opened.cancel();
        match opened {
            Ok(Some(answer)) => self.answer = Some(Box::new(answer)),
            // SPEC: 405 says that there is no such stream. 400 is what servers without it say.
            Ok(None) | Err(UpstreamError::Status(400 | 404)) => self.silent = true,
            Err(UpstreamError::SessionGone) => return Err(UpstreamError::SessionGone),
            Err(error) => {
                let error = crate::base::error_chain::Chain(&error);
                tracing::debug!(server = %self.upstream.name, %error, "no stream");
            }
        }
        Ok(())
    }

    /// Resolves when the stream was opened, or will not be.
    pub(super) fn opened(&self) -> CancellationToken {
        self.opened.clone()
    }

    pub(super) fn replier(&self) -> Replier {
        let upstream = Arc::clone(&self.upstream);
        Replier::new(upstream, self.party.clone(), Some(self.leg.clone()))
    }
}
