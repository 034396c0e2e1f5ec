//! The frames that the gateway counts on the wire are those that another reader finds, wherever the bytes are cut; and a
//! connection on which anything at all arrives ends, with no more requests than frames of headers.
#![no_main]

#[path = "shared/bounded.rs"]
mod bounded;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gateway::base::clock::SystemClock;
use gateway::base::task::Tasks;
use gateway::net::http2::server::{ServeContext, serve};
use gateway::net::http2::{ConnectionBounds, FrameHeader, Http2Bounds, frame_headers};
use gateway::stream::body::Body;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::bounded::bounded;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
});

/// The frame headers in `bytes`, read by their definition in RFC 9113, section 4.1.
fn frames(mut bytes: &[u8]) -> Vec<FrameHeader> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        found.push(FrameHeader { length, kind: head[3], flags: head[4], stream });
        bytes = rest.get(length..).unwrap_or_default();
    }
    found
}

/// The number of requests on a connection on which these bytes arrive after the preface and the settings of a client.
fn requests(bytes: &[u8]) -> usize {
    let bounds = Http2Bounds {
        max_concurrent_streams: 8,
        stream_resets: 20,
        control_frames: 100,
        stream_window: 65_536,
        connection_window: 65_536,
        send_buffer: 65_536,
        response_buffer: 65_536,
        idle_timeout: Duration::from_secs(60),
        ping_interval: Duration::from_secs(60),
        ping_timeout: Duration::from_secs(60),
    };
    let second = Duration::from_secs(1);
    let terms =
        ConnectionBounds { bounds, head: 16 * 1024, head_time: second, write_timeout: second };
    let means = ServeContext {
        terms,
        tasks: Tasks::default(),
        clock: Arc::new(SystemClock),
        vouched: Arc::default(),
    };
    let count = Arc::new(AtomicUsize::new(0));
    RUNTIME.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let counted = Arc::clone(&count);
        let served = serve(server, Arc::new(means), move |_request| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { http::Response::new(Body::empty()) }
        });
        let driven = async {
            let sent = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0], bytes].concat();
            let (mut reader, mut writer) = tokio::io::split(&mut client);
            let wrote = async {
                drop(writer.write_all(&sent).await);
                drop(writer.shutdown().await);
            };
            let read = async { drop(reader.read_to_end(&mut Vec::new()).await) };
            tokio::join!(wrote, read);
        };
        let both = async { tokio::join!(served, driven) };
        let ended = tokio::time::timeout(Duration::from_secs(10), both).await;
        assert!(ended.is_ok(), "the connection does not end");
    });
    count.load(Ordering::Relaxed)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = bounded(bytes.len(), |_| frame_headers([bytes]));
    assert_eq!(whole, frames(bytes));
    for size in [1, 5, 9, 10] {
        assert_eq!(whole, frame_headers(bytes.chunks(size)));
    }
    let most = whole.iter().filter(|frame| frame.kind == HEADERS).count();
    assert!(bounded(bytes.len(), |_| requests(bytes)) <= most);
});
