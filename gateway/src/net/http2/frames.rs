//! Counts the frames that the peer of an HTTP/2 connection sends and receives, on the wire.
//!
//! `h2` bounds what it has to store: streams, headers, windows. It accepts frames that cost work and store nothing
//! at any rate, and it does not bound the duration of a header list. Here
//! each such frame is paid for from an allowance: the peer has an initial one, which is replenished over time and by
//! frames to the peer that such frames are a response to.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{AuthenticationSignal, Http2Bounds, PeerLimit};

/// Length of the client's connection preface (RFC 9113, section 3.4), in bytes.
const PREFACE: usize = 24;
/// Length of a frame header, in bytes.
const HEAD: usize = 9;
/// The time in which the allowance is replenished completely, in milliseconds.
const REFILL: u128 = 10_000;
/// Frames that a peer may respond with to one HEADERS or DATA frame: two window updates, one for the
/// stream and one for the connection, and more for a peer that consumes a frame in parts.
const EARNED: u64 = 10;

/// Most streams that a client may have open at once before one of its requests was authenticated.
const UNAUTHENTICATED_STREAMS: usize = 8;
/// Most bytes of such a client that are read at once.
const PART: usize = 1024;

/// Frame types (RFC 9113, section 6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const CONTINUATION: u8 = 9;
}

/// Flags in the header of a frame.
mod flag {
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
}

/// A frame header (RFC 9113, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes.
    pub length: usize,
    /// The frame type.
    pub kind: u8,
    /// The flags, whose meaning depends on the type.
    pub flags: u8,
    /// The stream of the frame; 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    fn read(bytes: &[u8]) -> Option<Self> {
        let [high, middle, low, kind, flags, stream @ ..]: [u8; HEAD] = bytes.try_into().ok()?;
        let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).ok()?;
        // The first bit is reserved (RFC 9113, section 4.1).
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        Some(Self { length, kind, flags, stream })
    }

    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A parser of frame headers in one direction, independent of how the bytes are split.
#[derive(Debug)]
struct FrameParser {
    /// The received part of the next frame header.
    head: Vec<u8>,
    /// Number of bytes before the next frame header.
    skip: usize,
    list: HeaderListState,
}

/// The position of the next byte in a header list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderListState {
    /// Outside a header list.
    None,
    /// In a frame that is continued by others.
    Open,
    /// In the last frame of a list.
    Last,
}

impl FrameParser {
    fn after(preface: usize) -> Self {
        Self { head: Vec::with_capacity(HEAD), skip: preface, list: HeaderListState::None }
    }

    /// Parses `bytes`, and calls `each` for every frame header that is completed in them.
    fn look(&mut self, mut bytes: &[u8], mut each: impl FnMut(FrameHeader)) {
        while !bytes.is_empty() {
            let room = if self.skip > 0 { self.skip } else { HEAD - self.head.len() };
            let (part, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            bytes = rest;
            if self.skip > 0 {
                self.skip -= part.len();
            } else {
                self.head.extend_from_slice(part);
                let Some(head) = FrameHeader::read(&self.head) else { continue };
                self.head.clear();
                self.skip = head.length;
                self.begin(head);
                each(head);
            }
            if self.skip == 0 && self.list == HeaderListState::Last {
                self.list = HeaderListState::None;
            }
        }
    }

    fn begin(&mut self, head: FrameHeader) {
        if matches!(head.kind, kind::HEADERS | kind::CONTINUATION) {
            self.list = if head.has(flag::END_HEADERS) {
                HeaderListState::Last
            } else {
                HeaderListState::Open
            };
        }
    }
}

/// The headers of the frames in `pieces`, as a connection parses what a peer sends after the preface.
pub fn frame_headers<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<FrameHeader> {
    let (mut parser, mut found) = (FrameParser::after(0), Vec::new());
    for piece in pieces {
        parser.look(piece, |head| found.push(head));
    }
    found
}

/// The allowance of a peer for one kind of frame.
#[derive(Debug)]
struct FrameAllowance {
    most: u64,
    left: u64,
    since: Instant,
}

impl FrameAllowance {
    fn new(most: u32, now: Instant) -> Self {
        Self { most: most.into(), left: most.into(), since: now }
    }

    fn earn(&mut self, more: u64) {
        self.left = self.left.saturating_add(more).min(self.most);
    }

    /// Takes one unit; `false` if none was left.
    fn spend(&mut self, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.since).as_millis();
        let more = u64::try_from(waited * u128::from(self.most) / REFILL).unwrap_or(u64::MAX);
        if more > 0 {
            self.since = now;
            self.earn(more);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

/// The resources of responses that are not completely written, by stream.
#[derive(Default)]
struct UnwrittenResponses(HashMap<u32, Box<dyn Any + Send>>);

impl fmt::Debug for UnwrittenResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten").field("streams", &self.0.len()).finish()
    }
}

/// The observed state of a connection, in both directions.
#[derive(Debug)]
pub(super) struct FrameMonitor {
    started: Instant,
    /// The time of the last received bytes, in milliseconds after `started`.
    heard: AtomicU64,
    /// The time at which the current header list began, in milliseconds plus one; 0 without one.
    list: AtomicU64,
    /// Whether the gateway leaves a frame of the peer unread, so that the peer cannot be heard.
    held_back: AtomicBool,
    flood: OnceLock<PeerLimit>,
    /// `None` after the end of the connection. Has at most one entry for each stream.
    unwritten: Mutex<Option<UnwrittenResponses>>,
}

impl FrameMonitor {
    fn new(now: Instant) -> Arc<Self> {
        let (heard, list) = (AtomicU64::new(0), AtomicU64::new(0));
        let unwritten = Mutex::new(Some(UnwrittenResponses::default()));
        let held_back = AtomicBool::new(false);
        Arc::new(Self { started: now, heard, list, held_back, flood: OnceLock::new(), unwritten })
    }

    fn unwritten(&self) -> MutexGuard<'_, Option<UnwrittenResponses>> {
        // No operation panics in the middle of a change.
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `held` until the last frame of `stream` was written, either peer resets it, or the connection ends.
    pub(super) fn hold(&self, stream: u32, held: Box<dyn Any + Send>) {
        let before = match &mut *self.unwritten() {
            Some(unwritten) => unwritten.0.insert(stream, held),
            None => Some(held),
        };
        // Dropped outside the lock, here and below, because the drop takes the locks of the shares.
        drop(before);
    }

    /// Drops the resources of `stream`.
    pub(super) fn release(&self, stream: u32) {
        let held = self.unwritten().as_mut().and_then(|unwritten| unwritten.0.remove(&stream));
        drop(held);
    }

    /// Drops the resources of all streams when the connection has ended, and keeps nothing from then on.
    pub(super) fn end(&self) {
        let all = self.unwritten().take();
        drop(all);
    }

    /// Tells that the gateway leaves a frame of the peer unread.
    fn hold_back(&self) {
        self.held_back.store(true, Ordering::Relaxed);
        // What of the frame was read before does not count: its time begins when the rest is read.
        self.list.store(0, Ordering::Relaxed);
    }

    /// Whether the gateway leaves a frame of the peer unread.
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }

    /// The time of the last received bytes; now while a frame is left unread.
    pub(super) fn heard(&self) -> Instant {
        if self.is_held_back() {
            return Instant::now();
        }
        self.started + Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    /// The time at which the current header list began; `None` without one.
    pub(super) fn list_began(&self) -> Option<Instant> {
        let after = self.list.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started + Duration::from_millis(after))
    }

    /// The limit that the peer has exceeded, if any.
    pub(super) fn flood(&self) -> Option<PeerLimit> {
        self.flood.get().copied()
    }

    fn note(&self, now: Instant, list: HeaderListState) {
        let after = now.saturating_duration_since(self.started).as_millis();
        let after = u64::try_from(after).unwrap_or(u64::MAX - 1);
        self.heard.store(after, Ordering::Relaxed);
        self.held_back.store(false, Ordering::Relaxed);
        let began = self.list.load(Ordering::Relaxed);
        match list {
            HeaderListState::None => self.list.store(0, Ordering::Relaxed),
            HeaderListState::Open | HeaderListState::Last if began == 0 => {
                self.list.store(after + 1, Ordering::Relaxed)
            }
            HeaderListState::Open | HeaderListState::Last => {}
        }
    }
}

/// The open streams of a client none of whose requests was authenticated yet.
///
/// `h2` keeps the memory of as many streams as were ever open at once for as long as the connection lasts, and the limit
/// that it advertises cannot be raised later. So the frames of such a client are read one at a time, and the HEADERS
/// frame that would open one stream too many is left unread until another stream has ended.
#[derive(Debug)]
struct UnauthenticatedStreams {
    signal: Arc<AuthenticationSignal>,
    open: HashSet<u32>,
    /// The highest stream id so far: HEADERS frames of others are trailers.
    newest: u32,
    /// The task that drives the connection, while a frame is left unread.
    waker: Option<Waker>,
}

impl UnauthenticatedStreams {
    fn new(signal: Arc<AuthenticationSignal>) -> Self {
        Self { signal, open: HashSet::new(), newest: 0, waker: None }
    }

    fn opened(&mut self, stream: u32) {
        if stream > self.newest {
            self.newest = stream;
            self.open.insert(stream);
        }
    }

    fn ended(&mut self, stream: u32) {
        if self.open.remove(&stream)
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }
}

/// What the peer of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerRole {
    Client,
    Server,
}

/// A connection whose frames are counted. It stops reading from a peer that has exceeded a limit.
#[derive(Debug)]
pub(super) struct MonitoredStream<S> {
    stream: S,
    /// `None` for a server, and for a client once a request was authenticated.
    unauthenticated: Option<UnauthenticatedStreams>,
    peer: PeerRole,
    incoming: FrameParser,
    outgoing: FrameParser,
    control: FrameAllowance,
    resets: FrameAllowance,
    watch: Arc<FrameMonitor>,
}

impl<S> MonitoredStream<S> {
    /// Wraps a connection to a client.
    pub(super) fn of_client(
        stream: S,
        bounds: &Http2Bounds,
        signal: Arc<AuthenticationSignal>,
    ) -> (Self, Arc<FrameMonitor>) {
        let (mut watched, watch) = Self::new(stream, bounds, PeerRole::Client);
        watched.unauthenticated = Some(UnauthenticatedStreams::new(signal));
        (watched, watch)
    }

    /// Wraps a connection to a server.
    pub(super) fn of_server(stream: S, bounds: &Http2Bounds) -> (Self, Arc<FrameMonitor>) {
        Self::new(stream, bounds, PeerRole::Server)
    }

    fn new(stream: S, bounds: &Http2Bounds, peer: PeerRole) -> (Self, Arc<FrameMonitor>) {
        let now = Instant::now();
        // The client sends the preface.
        let (incoming, outgoing) = match peer {
            PeerRole::Client => (PREFACE, 0),
            PeerRole::Server => (0, PREFACE),
        };
        let watch = FrameMonitor::new(now);
        let watched = Self {
            stream,
            unauthenticated: None,
            peer,
            incoming: FrameParser::after(incoming),
            outgoing: FrameParser::after(outgoing),
            control: FrameAllowance::new(bounds.control_frames, now),
            resets: FrameAllowance::new(bounds.stream_resets, now),
            watch: Arc::clone(&watch),
        };
        (watched, watch)
    }

    fn came(&mut self, bytes: &[u8], now: Instant) {
        let Self { incoming, control, resets, watch, unauthenticated, peer, .. } = self;
        incoming.look(bytes, |head| {
            let (fits, flood) = match head.kind {
                kind::HEADERS => {
                    if let Some(unauthenticated) = unauthenticated {
                        unauthenticated.opened(head.stream);
                    }
                    if *peer == PeerRole::Client {
                        return;
                    }
                    // Interim responses have no bound of their own. Each request that is sent pays for ten frames.
                    (control.spend(now), PeerLimit::Control)
                }
                kind::DATA if head.length > 0 || head.has(flag::END_STREAM) => return,
                kind::RST_STREAM => {
                    watch.release(head.stream);
                    if let Some(unauthenticated) = unauthenticated {
                        unauthenticated.ended(head.stream);
                    }
                    (resets.spend(now), PeerLimit::Resets)
                }
                _ => (control.spend(now), PeerLimit::Control),
            };
            if !fits {
                watch.flood.get_or_init(|| flood);
            }
        });
        watch.note(now, incoming.list);
    }

    fn went(&mut self, bytes: &[u8]) {
        let Self { outgoing, control, resets, watch, unauthenticated, .. } = self;
        outgoing.look(bytes, |head| {
            let ends = match head.kind {
                kind::HEADERS => {
                    control.earn(EARNED);
                    resets.earn(1);
                    head.has(flag::END_STREAM)
                }
                kind::DATA => {
                    control.earn(EARNED);
                    head.has(flag::END_STREAM)
                }
                kind::RST_STREAM => {
                    // A peer can provoke resets with what it sends on its streams (CVE-2025-8671).
                    if !resets.spend(Instant::now()) {
                        watch.flood.get_or_init(|| PeerLimit::Resets);
                    }
                    true
                }
                _ => false,
            };
            if ends {
                watch.release(head.stream);
                if let Some(unauthenticated) = unauthenticated {
                    unauthenticated.ended(head.stream);
                }
            }
        });
    }
}

impl<S> MonitoredStream<S> {
    /// How many bytes of a client are read that no request has authenticated: the rest of a frame header, or of a frame
    /// whose header was read; none while its streams are too many. `None` for other peers, which are read freely.
    fn next_part(&mut self, cx: &Context<'_>) -> Option<usize> {
        let unauthenticated = self.unauthenticated.as_mut()?;
        if self.incoming.skip == 0 {
            return Some(HEAD - self.incoming.head.len());
        }
        if unauthenticated.open.len() <= UNAUTHENTICATED_STREAMS {
            return Some(self.incoming.skip);
        }
        // Woken when a stream has ended, or a request was authenticated.
        unauthenticated.waker = Some(cx.waker().clone());
        if unauthenticated.signal.is_for(cx) {
            return None;
        }
        self.watch.hold_back();
        Some(0)
    }
}

/// Reads at most `most` bytes, and at most those of a small buffer.
fn read_part<S: AsyncRead>(
    stream: Pin<&mut S>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<()>> {
    let mut bytes = [0; PART];
    let most = most.min(buffer.remaining()).min(PART);
    let mut part = ReadBuf::new(bytes.get_mut(..most).unwrap_or_default());
    let read = stream.poll_read(cx, &mut part);
    buffer.put_slice(part.filled());
    read
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        if watched.watch.flood().is_some() {
            // The task that drives the connection checks for a flood after each poll, so it needs no waker.
            return Poll::Pending;
        }
        if watched
            .unauthenticated
            .as_ref()
            .is_some_and(|unauthenticated| unauthenticated.signal.is())
        {
            watched.unauthenticated = None;
        }
        let before = buffer.filled().len();
        let read = match watched.next_part(cx) {
            None => Pin::new(&mut watched.stream).poll_read(cx, buffer),
            Some(0) => Poll::Pending,
            Some(most) => read_part(Pin::new(&mut watched.stream), cx, buffer, most),
        };
        let new = buffer.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            watched.came(new, Instant::now());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let written = Pin::new(&mut watched.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            watched.went(bytes.get(..*count).unwrap_or_default());
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let written = Pin::new(&mut watched.stream).poll_write_vectored(cx, parts);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for part in parts {
                let most = left.min(part.len());
                watched.went(part.get(..most).unwrap_or_default());
                left -= most;
            }
        }
        written
    }

    forward_flush_and_shutdown!(stream);
}

#[cfg(test)]
mod tests {
    use super::{FrameParser, HeaderListState, MonitoredStream, PREFACE};
    use crate::net::http2::{Http2Bounds, PeerLimit};
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};
    use tokio::time::Instant;

    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const PRIORITY: u8 = 2;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const CONTINUATION: u8 = 9;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(9 + usize::from(length), 0);
        frame
    }

    fn bounds() -> Http2Bounds {
        let second = Duration::from_secs(1);
        Http2Bounds {
            max_concurrent_streams: 10,
            stream_resets: 20,
            control_frames: 100,
            stream_window: 65_535,
            connection_window: 65_535,
            send_buffer: 65_535,
            response_buffer: 65_535,
            idle_timeout: second,
            ping_interval: second,
            ping_timeout: second,
        }
    }

    /// Number of equal frames that a client may send at once.
    fn taken(one: &[u8]) -> usize {
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        let now = Instant::now();
        watched.came(&[0; PREFACE], now);
        for count in 0..1000 {
            watched.came(one, now);
            if watch.flood().is_some() {
                return count;
            }
        }
        usize::MAX
    }

    #[test]
    fn a_frame_that_carries_nothing_is_paid_for() {
        for (one, most) in [
            (frame(RST_STREAM, 0, 4), 20),
            (frame(PING, 0, 8), 100),
            (frame(PING, 1, 8), 100),
            (frame(SETTINGS, 0, 0), 100),
            (frame(PRIORITY, 0, 5), 100),
            (frame(WINDOW_UPDATE, 0, 4), 100),
            (frame(CONTINUATION, 0, 1), 100),
            (frame(DATA, 0, 0), 100),
            (frame(77, 0, 3), 100),
            (frame(DATA, 0, 1), usize::MAX),
            (frame(DATA, 1, 0), usize::MAX),
            (frame(HEADERS, 4, 1), usize::MAX),
        ] {
            assert_eq!(taken(&one), most, "{one:?}");
        }
    }

    #[test]
    fn resets_that_a_peer_provokes_are_paid_for_and_those_behind_an_answer_are_not() {
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        let reset = frame(RST_STREAM, 0, 4);
        for _ in 0..100 {
            watched.went(&frame(HEADERS, 4, 1));
            watched.went(&reset);
        }
        assert_eq!(watch.flood(), None);
        (0..30).for_each(|_| watched.went(&reset));
        assert_eq!(watch.flood(), Some(PeerLimit::Resets));
    }

    #[test]
    fn the_heads_of_a_server_are_paid_for_by_requests() {
        let (mut watched, watch) = MonitoredStream::of_server((), &bounds());
        let now = Instant::now();
        watched.went(&[0; PREFACE]);
        for _ in 0..1000 {
            watched.went(&frame(HEADERS, 4, 1));
            (0..5).for_each(|_| watched.came(&frame(HEADERS, 4, 1), now));
        }
        assert_eq!(watch.flood(), None, "a few interim responses to each request");
        (0..101).for_each(|_| watched.came(&frame(HEADERS, 4, 1), now));
        assert_eq!(watch.flood(), Some(PeerLimit::Control));
    }

    #[test]
    fn time_and_answers_pay_for_more() {
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        let now = Instant::now();
        watched.came(&[0; PREFACE], now);
        for round in 0..50 {
            for _ in 0..10 {
                watched.came(&frame(WINDOW_UPDATE, 0, 4), now);
            }
            watched.came(&frame(RST_STREAM, 0, 4), now);
            watched.went(&frame(HEADERS, 4, 1));
            assert_eq!(watch.flood(), None, "{round}");
        }
        // A tenth of the allowance is replenished in a tenth of the time.
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        watched.came(&[0; PREFACE], now);
        for second in 0..50 {
            for _ in 0..10 {
                watched.came(&frame(PING, 0, 8), now + Duration::from_secs(second));
            }
        }
        assert_eq!(watch.flood(), None);
        (0..101).for_each(|_| watched.came(&frame(PING, 0, 8), now + Duration::from_secs(50)));
        assert_eq!(watch.flood(), Some(PeerLimit::Control));
    }

    #[test]
    fn a_list_of_headers_is_on_its_way_until_its_last_byte_has_come() {
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        let now = Instant::now();
        watched.came(&[0; PREFACE], now);
        assert_eq!(watch.list_began(), None);
        watched.came(&frame(HEADERS, 0, 3), now);
        assert!(watch.list_began().is_some());
        let last = frame(CONTINUATION, 4, 3);
        let (most, rest) = last.split_at(11);
        watched.came(most, now + Duration::from_secs(1));
        let began = watch.list_began().unwrap();
        assert!(began < now + Duration::from_millis(500), "the beginning counts");
        watched.came(rest, now);
        assert_eq!(watch.list_began(), None);
        watched.came(&frame(HEADERS, 4, 0), now);
        assert_eq!(watch.list_began(), None);
    }

    #[tokio::test]
    async fn a_head_that_is_left_unread_is_not_late_and_its_peer_not_silent() {
        let (mut client, server) = tokio::io::duplex(4096);
        let (mut watched, watch) = MonitoredStream::of_client(server, &bounds(), Arc::default());
        let streams = u8::try_from(super::UNAUTHENTICATED_STREAMS).unwrap() + 1;
        let requests = (0..streams).flat_map(|n| {
            let mut request = frame(HEADERS, 5, 3);
            *request.get_mut(8).unwrap() = 2 * n + 1;
            request
        });
        let all: Vec<u8> = [0; PREFACE].into_iter().chain(requests).collect();
        client.write_all(&all).await.unwrap();
        let mut buffer = vec![0; all.len()];
        let mut read = 0;
        while !watch.is_held_back() {
            let mut part = ReadBuf::new(&mut buffer);
            let pending = poll_fn(|cx| {
                Poll::Ready(Pin::new(&mut watched).poll_read(cx, &mut part).is_pending())
            });
            let pending = pending.await;
            read += part.filled().len();
            assert_eq!(pending, watch.is_held_back());
        }
        assert_eq!(read, all.len() - 3, "all but the last head");
        assert_eq!(watch.list_began(), None);
        let before = Instant::now();
        assert!(watch.heard() >= before);
        // A response makes room for it.
        watched.went(&frame(HEADERS, 5, 3));
        watched.read_exact(&mut [0; 2]).await.unwrap();
        assert!(!watch.is_held_back());
        assert!(watch.list_began().is_some(), "its time has begun");
        watched.read_exact(&mut [0; 1]).await.unwrap();
        assert_eq!(watch.list_began(), None);
    }

    #[test]
    fn what_an_answer_holds_is_given_back_with_its_last_frame_or_a_reset_or_the_connection() {
        let last = |kind: u8, flags: u8, stream: u8| {
            let mut last = frame(kind, flags, 4);
            *last.get_mut(8).unwrap() = stream;
            last
        };
        let (mut watched, watch) = MonitoredStream::of_client((), &bounds(), Arc::default());
        let held: Vec<_> = (0..6).map(|_| Arc::new(())).collect();
        let is_held = |at: usize| Arc::strong_count(&held[at]) > 1;
        for (stream, held) in (1..).zip(&held) {
            watch.hold(stream, Box::new(Arc::clone(held)));
        }
        watched.went(&last(HEADERS, 4, 1));
        watched.went(&last(DATA, 0, 2));
        assert!((0..6).all(is_held));
        watched.went(&last(HEADERS, 5, 1));
        watched.went(&last(DATA, 1, 2));
        watched.went(&last(RST_STREAM, 0, 3));
        watched.came(&[0; PREFACE], Instant::now());
        watched.came(&last(RST_STREAM, 0, 4), Instant::now());
        assert_eq!([0, 1, 2, 3, 4, 5].map(is_held), [false, false, false, false, true, true]);
        watch.release(5);
        assert!(!is_held(4) && is_held(5));
        watch.end();
        watch.hold(7, Box::new(Arc::clone(&held[0])));
        assert!(!is_held(5) && !is_held(0));
    }

    proptest! {
        /// The frames are independent of how the bytes are split.
        #[test]
        fn where_the_bytes_are_cut_makes_no_difference(
            order in prop::collection::vec((0..10_u8, any::<u8>(), 0..40_u8), 1..20),
            size in 1..50_usize,
        ) {
            let all: Vec<u8> =
                order.iter().flat_map(|(kind, flags, length)| frame(*kind, *flags, *length)).collect();
            let mut frames = FrameParser::after(0);
            let mut seen = Vec::new();
            for piece in all.chunks(size) {
                frames.look(piece, |head| seen.push((head.kind, head.flags, head.length)));
            }
            let sent = order.iter().map(|(kind, flags, length)| (*kind, *flags, usize::from(*length)));
            prop_assert_eq!(seen, sent.collect::<Vec<_>>());
            prop_assert_ne!(frames.list, HeaderListState::Last);
        }
    }
}
