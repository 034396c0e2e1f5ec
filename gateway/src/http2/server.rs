//! Connections of clients that speak HTTP/2.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::frames::Watched;
use super::upkeep::{Due, Upkeep};
use super::{FRAME, Flood, Http2Error, Received, Terms};
use crate::body::Body;
use crate::clock::Clock;
use crate::task::Tasks;

/// How long a connection that is about to end is kept for requests that were on their way when its client
/// was told.
const CLOSING: Duration = Duration::from_secs(1);

/// What a connection is served with.
#[derive(Debug)]
pub struct Means {
    /// Its bounds.
    pub terms: Terms,
    /// The tasks that work on its requests.
    pub tasks: Tasks,
    /// The time of day, for answers.
    pub clock: Arc<dyn Clock>,
}

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It takes requests.
    Serving,
    /// Its client was told that it ends, and may finish what is under way.
    Closing,
    /// It is flushed, and ends.
    Leaving,
}

/// What happens on a connection.
enum Event {
    Request(Box<Request<RecvStream>>, SendResponse<Bytes>),
    Ended(Result<(), h2::Error>),
    Flood(Flood),
    Stopping,
    Due(Due),
}

/// Serves a connection until it ends, each request with what `answer` makes of it.
///
/// # Errors
/// When it ends for what its client does, or breaks.
pub async fn serve<S, A, F>(stream: S, means: Arc<Means>, answer: A) -> Result<(), Http2Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Received>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let Means { terms, tasks, .. } = &*means;
    let (stream, watch) = Watched::of_client(stream, &terms.bounds);
    let shaken = timeout(terms.head_time, builder(terms).handshake(stream)).await;
    let shaken = shaken.map_err(|_elapsed| Http2Error::Late)?;
    let mut connection: Connection<_, Bytes> = shaken.map_err(Http2Error::Broken)?;
    let pings = connection.ping_pong();
    let mut upkeep = Upkeep::new(Arc::clone(&watch), *terms, terms.bounds.idle_time, pings);
    let unsent = Arc::new(Unsent { bytes: AtomicUsize::new(0), most: terms.bounds.answers });
    let mut stopping = pin!(tasks.stopping());
    let (mut asked, mut stage, mut why) = (false, Stage::Serving, Ok(()));
    loop {
        let event = poll_fn(|cx| {
            let accepted = connection.poll_accept(cx);
            if let Some(flood) = watch.flood().filter(|_| stage != Stage::Leaving) {
                return Poll::Ready(Event::Flood(flood));
            }
            match accepted {
                Poll::Ready(Some(Ok((request, reply)))) => {
                    return Poll::Ready(Event::Request(Box::new(request), reply));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Event::Ended(Err(error))),
                Poll::Ready(None) => return Poll::Ready(Event::Ended(Ok(()))),
                Poll::Pending => {}
            }
            if stage == Stage::Serving {
                // Asked once, so that a stop wakes this task; from then on a flag says as much.
                let first = !std::mem::replace(&mut asked, true);
                if first && stopping.as_mut().poll(cx).is_ready() || tasks.is_stopping() {
                    return Poll::Ready(Event::Stopping);
                }
            }
            upkeep.poll(cx, connection.has_streams()).map(Event::Due)
        })
        .await;
        match (event, stage) {
            // For its client it has ended already, or it does not even take what it is to be told.
            (Event::Ended(_) | Event::Due(_), Stage::Leaving) => return why,
            (Event::Request(..) | Event::Flood(_) | Event::Stopping, Stage::Leaving) => {}
            (Event::Ended(ended), Stage::Serving | Stage::Closing) => {
                return ended.map_err(Http2Error::Broken);
            }
            (Event::Request(request, reply), Stage::Serving | Stage::Closing) => {
                let (head, body) = request.into_parts();
                let bodiless = head.method == Method::HEAD;
                let body = Received::new(body, &head.headers);
                let answer = Box::pin(answer(Request::from_parts(head, body)));
                let (unsent, means) = (Arc::clone(&unsent), Arc::clone(&means));
                tasks.spawn(Stream { reply, bodiless, unsent, means }.answered(answer));
            }
            (Event::Stopping, Stage::Serving | Stage::Closing)
            | (Event::Due(Due::Idle), Stage::Serving) => {
                connection.graceful_shutdown();
                upkeep.hurry(CLOSING);
                stage = Stage::Closing;
            }
            (Event::Due(Due::Idle), Stage::Closing) => {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                upkeep.hurry(CLOSING);
                stage = Stage::Leaving;
            }
            (Event::Due(Due::Silent), Stage::Serving | Stage::Closing) => {
                return Err(Http2Error::Silent);
            }
            (Event::Flood(flood), Stage::Serving | Stage::Closing) => {
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                (stage, why) = (Stage::Leaving, Err(Http2Error::Flood(flood)));
            }
            (Event::Due(Due::Head), Stage::Serving | Stage::Closing) => {
                connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                (stage, why) = (Stage::Leaving, Err(Http2Error::Flood(Flood::Head)));
            }
        }
    }
}

fn builder(terms: &Terms) -> Builder {
    let bounds = &terms.bounds;
    let resets = usize::try_from(bounds.resets).unwrap_or(usize::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.streams)
        .max_header_list_size(terms.head)
        .max_frame_size(FRAME)
        .initial_window_size(bounds.window)
        .initial_connection_window_size(bounds.connection_window)
        .max_send_buffer_size(bounds.send_buffer)
        // Streams that were reset are remembered for frames that were on their way.
        .max_concurrent_reset_streams(resets)
        .max_pending_accept_reset_streams(resets)
        .max_local_error_reset_streams(Some(resets));
    builder
}

/// The bytes of answers that wait on one connection. Over HTTP/1.1 there is one answer on a connection.
#[derive(Debug)]
struct Unsent {
    bytes: AtomicUsize,
    most: usize,
}

/// The part of one answer.
struct Part {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Unsent {
    /// Takes in an answer of so many bytes. One alone always fits.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Part> {
        let fits = |before: usize| {
            let after = before.saturating_add(bytes);
            (before == 0 || after <= self.most).then_some(after)
        };
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Part { unsent: Arc::clone(self), bytes })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// One request and its answer.
struct Stream {
    reply: SendResponse<Bytes>,
    /// The answer has no body, whatever its headers say.
    bodiless: bool,
    unsent: Arc<Unsent>,
    means: Arc<Means>,
}

impl Stream {
    /// Sends what `answer` comes to. It is given up when the client resets the stream or is gone, as it is
    /// where a client of HTTP/1.1 hangs up.
    async fn answered(mut self, mut answer: impl Future<Output = Response<Body>> + Unpin) {
        let Some(response) = self.until_reset(&mut answer).await else { return };
        let (mut head, body) = response.into_parts();
        self.complete(&mut head.headers, &body);
        let Some(_part) = self.unsent.take(body.length()) else {
            self.reply.send_reset(Reason::ENHANCE_YOUR_CALM);
            return;
        };
        let ends = self.bodiless || body.is_end_stream();
        match self.reply.send_response(Response::from_parts(head, ()), ends) {
            Ok(_) if ends => {}
            Ok(mut stream) => send(body, &mut stream, self.means.terms.write_time).await,
            Err(error) => {
                tracing::debug!(%error, "an answer could not be sent");
                self.reply.send_reset(Reason::INTERNAL_ERROR);
            }
        }
    }

    async fn until_reset<T>(
        &mut self,
        answer: &mut (impl Future<Output = T> + Unpin),
    ) -> Option<T> {
        poll_fn(|cx| {
            if self.reply.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut *answer).poll(cx).map(Some)
        })
        .await
    }

    /// Adds what an answer has to have, and takes out what belongs to a connection of HTTP/1.1: that a
    /// stream is the last one is told by its reset alone (RFC 9113, sections 8.1 and 8.2.2).
    fn complete(&self, headers: &mut HeaderMap, body: &Body) {
        headers.remove(CONNECTION);
        let length = body.size_hint().exact().filter(|length| *length > 0);
        if let Some(length) = length.filter(|_| !headers.contains_key(CONTENT_LENGTH)) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // RFC 9110, section 6.6.1.
        let date = httpdate::fmt_http_date(self.means.clock.now());
        if let Ok(date) = HeaderValue::try_from(date) {
            headers.insert(DATE, date);
        }
    }
}

/// Sends a body as fast as the client takes it. One that gives a stream no room for `patience` loses it: a
/// connection that is written to well can have streams that are not.
async fn send(mut body: Body, stream: &mut SendStream<Bytes>, patience: Duration) {
    loop {
        let next = poll_fn(|cx| {
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(None);
            }
            Pin::new(&mut body).poll_frame(cx).map(Some)
        });
        let Some(next) = next.await else { return };
        let data = match next.transpose() {
            Ok(frame) => frame.and_then(|frame| frame.into_data().ok()),
            Err(error) => {
                tracing::debug!(%error, "an answer was cut off");
                stream.send_reset(Reason::CANCEL);
                return;
            }
        };
        let last = data.is_none() || body.is_end_stream();
        let Some(sent) = piece(data.unwrap_or_default(), last, stream, patience).await else {
            return;
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "an answer could not be sent");
            return;
        }
        if last {
            return;
        }
    }
}

/// Sends a piece of a body; `None` when the client has reset the stream or gives it no room.
async fn piece(
    mut data: Bytes,
    last: bool,
    stream: &mut SendStream<Bytes>,
    patience: Duration,
) -> Option<Result<(), h2::Error>> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        if stream.capacity() == 0 {
            let room = timeout(patience, poll_fn(|cx| stream.poll_capacity(cx)));
            let Ok(room) = room.await else {
                stream.send_reset(Reason::CANCEL);
                return None;
            };
            if let Err(error) = room? {
                return Some(Err(error));
            }
        }
        let part = data.split_to(stream.capacity().min(data.len()));
        if part.is_empty() {
            continue;
        }
        let done = last && data.is_empty();
        if let Err(error) = stream.send_data(part, done) {
            return Some(Err(error));
        }
        if done {
            return Some(Ok(()));
        }
    }
    if last { Some(stream.send_data(Bytes::new(), true)) } else { Some(Ok(())) }
}
