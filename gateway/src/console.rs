//! The gateway as a server over standard input and output, for clients that start their servers.
//!
//! SPEC 2026-07-28 basic/transports/stdio

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, stdin, stdout};
use tokio::sync::mpsc;

use crate::bridge::{Bridge, Out};
use crate::budget::Room;
use crate::door::{Door, Peer};
use crate::exchange::Gateway;
use crate::queue::{self, queue};
use crate::secret::Secret;
use crate::share::Holder;

/// Messages that wait to be written.
const WAITING: usize = 64;

/// Serves one client until it closes its end. `key` is the API key it calls with, if any.
pub async fn serve(gateway: Arc<Gateway>, door: Door, path: Uri, key: Option<Secret>) {
    let mut credentials = HeaderMap::new();
    if let Some(key) = key.as_ref() {
        let value = HeaderValue::try_from(format!("Bearer {}", key.expose()));
        credentials.extend(value.ok().map(|value| (AUTHORIZATION, value)));
    }
    let nowhere = Peer::at(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let room = gateway.conversations.room(&Holder::network(nowhere.address.ip()));
    let (queue, messages) = queue(Room { events: WAITING, ..room });
    // The one client may read as slowly as it likes: nobody else waits for it.
    let out = Out { queue, write: |message| message, patience: None };
    let bridge = Bridge::new(Arc::clone(&gateway), Arc::new(door), nowhere, path, out);
    let (written, mut all_written) = mpsc::channel::<()>(1);
    gateway.tasks.spawn(async move {
        write(messages).await;
        drop(written);
    });
    let limit = gateway.limits.request_body;
    let mut input = BufReader::new(stdin());
    loop {
        let line = tokio::select! {
            line = line(&mut input, limit) => line,
            () = gateway.tasks.stopping() => None,
        };
        let Some(line) = line else { break };
        if !line.iter().all(u8::is_ascii_whitespace) {
            bridge.take(line, &credentials).await;
        }
    }
    bridge.end(&credentials).await;
    drop(bridge);
    // What is under way in the legacy era goes on to its end, but not for ever.
    let patience = gateway.limits.drain_time.min(Duration::from_secs(2));
    drop(tokio::time::timeout(patience, all_written.recv()).await);
}

async fn write(mut messages: queue::Receiver) {
    let mut output = stdout();
    while let Some(message) = messages.next().await {
        let mut whole = Vec::with_capacity(message.len() + 1);
        // A message has no line end inside; in JSON a space means the same.
        whole.extend(message.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
        whole.push(b'\n');
        if output.write_all(&whole).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

/// One line; `None` at the end of the input. A line that is too long is read to its end and cut, so
/// that it is refused as what it is and the next line is read well.
async fn line(input: &mut (impl tokio::io::AsyncBufRead + Unpin), limit: usize) -> Option<Bytes> {
    let mut text = Vec::new();
    loop {
        let buffer = input.fill_buf().await.ok()?;
        if buffer.is_empty() {
            return (!text.is_empty()).then(|| text.into());
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let room = (limit + 1).saturating_sub(text.len());
        text.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Some(text.into());
        }
    }
}
