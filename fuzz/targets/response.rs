//! A response over HTTP/1.1 that is read without buffers reads the same wherever its bytes are cut, and the way in which
//! another parser reads it: one framing, and the same body.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use gateway::net::unbuffered::{HeadBounds, UnbufferedConnection};
use http::Request;
use httparse::Status;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::bounded::bounded;

const BOUNDS: HeadBounds = HeadBounds { head: 16 * 1024, before_body: 64 * 1024 };

/// A server that sends these pieces, one for each read, and closes the connection.
struct Pieces<'a>(Vec<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pieces = &mut self.get_mut().0;
        if let Some(piece) = pieces.pop() {
            let (now, later) = piece.split_at(buffer.remaining().min(piece.len()));
            buffer.put_slice(now);
            if !later.is_empty() {
                pieces.push(later);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The output of a future that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits, though everything has arrived"),
    }
}

/// The status and the body of a response that arrives in these pieces; `None` if it is refused or incomplete.
fn read(pieces: &[&[u8]]) -> Option<(u16, Vec<u8>)> {
    let mut left: Vec<_> = pieces.iter().copied().filter(|piece| !piece.is_empty()).collect();
    left.reverse();
    now(async {
        let mut connection = UnbufferedConnection::new(Pieces(left), BOUNDS);
        let request = Request::new(Bytes::new()).map(Into::into);
        let response = connection.send(request).await.ok()?;
        let mut body = Vec::new();
        while let Some(data) = poll_fn(|cx| connection.poll_data(cx)).await {
            body.extend_from_slice(&data.ok()?);
        }
        Some((response.status().as_u16(), body))
    })
}

/// The data of a chunked body for another parser.
fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let Ok(Status::Complete((start, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        if size == 0 {
            return Some(data);
        }
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        data.extend_from_slice(rest.get(start..end)?);
        rest = rest.get(end..)?.strip_prefix(b"\r\n")?;
    }
}

/// The status and the body of the first final response for another parser.
fn expected(mut rest: &[u8]) -> Option<(u16, Vec<u8>)> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Response::new(&mut headers);
        let Ok(Status::Complete(length)) = head.parse(rest) else { return None };
        rest = rest.get(length..)?;
        let code = head.code?;
        if (100..200).contains(&code) {
            continue;
        }
        let values = |name: &str| -> Vec<&[u8]> {
            let named = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            named.map(|header| header.value).collect()
        };
        let body = match (&*values("transfer-encoding"), &*values("content-length")) {
            _ if matches!(code, 204 | 304) => Vec::new(),
            ([], []) => rest.to_vec(),
            ([], [length]) => {
                let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
                rest.get(..length)?.to_vec()
            }
            ([_], []) => chunks(rest)?,
            _ => return None,
        };
        return Some((code, body));
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let (one, two) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = bounded(bytes.len(), |_| read(&[bytes]));
    assert_eq!(whole, read(&[one, two]));
    assert_eq!(whole, read(&bytes.chunks(7).collect::<Vec<_>>()));
    if whole.is_some() {
        assert_eq!(whole, expected(bytes));
    }
});
