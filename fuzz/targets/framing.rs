//! A request over HTTP/1.1 that the gateway takes for unambiguous has one length in the eyes of another parser as well, and
//! where the bytes are cut makes no difference.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use gateway::net::http_framing::{FramedStream, FramingCounts};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};

use self::bounded::bounded;

/// Pieces of what a client sends, one for each read.
struct Pieces<'a>(Vec<&'a [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if let Some(piece) = self.get_mut().0.pop() {
            buffer.put_slice(piece);
        }
        std::task::Poll::Ready(Ok(()))
    }
}

/// The number of unambiguous requests in what arrives in these pieces.
fn good(pieces: &[&[u8]]) -> usize {
    let counts = Arc::new(FramingCounts::default());
    let mut left: Vec<_> = pieces.iter().copied().filter(|piece| !piece.is_empty()).collect();
    left.reverse();
    let (reads, total) = (left.len(), left.iter().map(|piece| piece.len()).sum());
    let mut stream = FramedStream::new(Pieces(left), Arc::clone(&counts));
    let mut room = vec![0; total];
    let mut buffer = ReadBuf::new(&mut room);
    for _ in 0..reads {
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut stream).poll_read(&mut cx, &mut buffer);
        assert!(read.is_ready());
    }
    (0..).take_while(|_| counts.next_is_good()).count()
}

/// Whether another parser, which has read the first head, finds one length in it or none, and no fragment in the target.
fn is_plain(head: &httparse::Request<'_, '_>) -> bool {
    let values = |name: &str| -> Vec<&[u8]> {
        let named = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value.trim_ascii()).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    lengths.len() + codings.len() <= 1
        && lengths.iter().all(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit))
        && codings.iter().all(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        && !head.path.unwrap_or_default().contains('#')
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let (one, two) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = bounded(bytes.len(), |_| good(&[bytes]));
    assert_eq!(whole, good(&[one, two]));
    assert_eq!(whole, good(&bytes.chunks(7).collect::<Vec<_>>()));
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    if whole > 0 && head.parse(bytes).is_ok_and(|read| read.is_complete()) {
        assert!(is_plain(&head), "{head:?}");
    }
});
