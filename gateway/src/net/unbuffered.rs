//! A client connection of HTTP/1.1 for one request whose response may be silent for hours: the stream of a session at a
//! server.
//!
//! hyper keeps 25 KiB for a connection, whether something arrives or not: buffers for reading and writing, and a queue.
//! There is one such connection for each listening client. This one reads into the stack of its thread, and keeps
//! nothing between two reads but its place in the body.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::base::segments::Segments;
use crate::net::chunked::{ChunkError, ChunkedDecoder};

/// Bytes that are read at once.
const READ: usize = 8 * 1024;
/// Most headers of a response.
const HEADERS: usize = 100;

/// Why a response cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnbufferedError {
    /// The byte stream failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// The server closed the connection before the end of its response.
    #[error("the connection was closed before the end of the response")]
    Incomplete,
    /// The head is not that of an HTTP response.
    #[error("the head of the response is invalid")]
    Head(#[from] httparse::Error),
    /// A name or a value in the head has another form than those of HTTP.
    #[error("a header of the response is invalid")]
    Header(#[from] http::Error),
    /// The head is too long.
    #[error("the head of the response is longer than {0} bytes")]
    LongHead(usize),
    /// The server sends too much before the head of its response.
    #[error("too many interim responses")]
    Interim,
    /// The length of the body is not stated in exactly one way.
    #[error("the framing of the response is ambiguous")]
    Framing,
    /// The chunked coding of the body is invalid.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}

impl UnbufferedError {
    /// Whether the server has sent something other than a response that has one reading.
    #[must_use]
    pub const fn is_violation(&self) -> bool {
        !matches!(self, Self::Stream(_) | Self::Incomplete)
    }
}

/// The bounds of what a server sends before the body, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct HeadBounds {
    /// The head of a response.
    pub head: usize,
    /// The head with all interim responses before it.
    pub before_body: usize,
}

/// A connection for one request, without buffers while nothing arrives.
#[derive(Debug)]
pub struct UnbufferedConnection<S> {
    stream: S,
    bounds: HeadBounds,
    framing: BodyFraming,
    /// The part of the body that arrived with the head.
    early: Bytes,
}

/// Where the body of a response ends (RFC 9112, section 6.3).
#[derive(Debug)]
enum BodyFraming {
    /// After the last chunk.
    Chunked(ChunkedDecoder),
    /// After so many bytes.
    Length(u64),
    /// Where the server closes the connection.
    UntilClose,
    /// At this point, because what follows is not in the chunked coding.
    Broken(ChunkError),
}

/// The head of a response as it was parsed, with its length.
struct ParsedHead {
    response: Response<()>,
    length: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> UnbufferedConnection<S> {
    /// A connection over `stream`.
    #[must_use]
    pub const fn new(stream: S, bounds: HeadBounds) -> Self {
        Self { stream, bounds, framing: BodyFraming::Length(0), early: Bytes::new() }
    }

    /// Sends the request of this connection, and waits for the head of the response.
    ///
    /// # Errors
    /// If the connection fails, or the head is not one of exactly one response.
    pub async fn send(
        &mut self,
        request: Request<Segments>,
    ) -> Result<Response<()>, UnbufferedError> {
        let (head, body) = request.into_parts();
        self.stream.write_all(&encode(&head, body.length())).await?;
        for part in body.parts() {
            self.stream.write_all(part).await?;
        }
        self.stream.flush().await?;
        self.head().await
    }

    /// Reads heads up to that of the final response.
    async fn head(&mut self) -> Result<Response<()>, UnbufferedError> {
        let (mut head, mut received) = (Vec::new(), 0);
        loop {
            let read = poll_fn(|cx| {
                read_into(&mut self.stream, cx, |bytes| {
                    head.extend_from_slice(bytes);
                    bytes.contains(&b'\n')
                })
            });
            let Some(Arrived { bytes, seen: has_line_end }) = read.await? else {
                return Err(UnbufferedError::Incomplete);
            };
            received += bytes;
            // A head ends with a line.
            if has_line_end && let Some(response) = self.final_head(&mut head)? {
                return Ok(response);
            }
            if head.len() > self.bounds.head {
                return Err(UnbufferedError::LongHead(self.bounds.head));
            }
            if received > self.bounds.before_body {
                return Err(UnbufferedError::Interim);
            }
        }
    }

    /// The final response in `text`, from which interim ones are removed; `None` if it is incomplete.
    fn final_head(&mut self, text: &mut Vec<u8>) -> Result<Option<Response<()>>, UnbufferedError> {
        while let Some(ParsedHead { response, length }) = parse(text)? {
            if length > self.bounds.head {
                return Err(UnbufferedError::LongHead(self.bounds.head));
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Err(UnbufferedError::Framing);
            }
            if !response.status().is_informational() {
                self.framing = framing(&response)?;
                self.early = Bytes::copy_from_slice(text.get(length..).unwrap_or_default());
                return Ok(Some(response));
            }
            text.drain(..length);
        }
        Ok(None)
    }

    /// The next part of the body; `None` at its end.
    pub fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, UnbufferedError>>> {
        loop {
            if self.framing.is_over() {
                return Poll::Ready(None);
            }
            if let BodyFraming::Broken(error) = self.framing {
                return Poll::Ready(Some(Err(error.into())));
            }
            let framing = &mut self.framing;
            let early = std::mem::take(&mut self.early);
            let data = if early.is_empty() {
                let read = read_into(&mut self.stream, cx, |bytes| framing.data(bytes));
                match ready!(read)? {
                    Some(Arrived { seen: data, .. }) => data,
                    None if matches!(framing, BodyFraming::UntilClose) => return Poll::Ready(None),
                    None => return Poll::Ready(Some(Err(UnbufferedError::Incomplete))),
                }
            } else {
                framing.data(&early)
            };
            match data {
                Ok(data) if data.is_empty() => {}
                data => return Poll::Ready(Some(data.map_err(UnbufferedError::from))),
            }
        }
    }
}

impl BodyFraming {
    const fn is_over(&self) -> bool {
        match self {
            Self::Chunked(decoder) => decoder.is_over(),
            Self::Length(left) => *left == 0,
            Self::UntilClose | Self::Broken(_) => false,
        }
    }

    /// The part of the body in bytes that have arrived.
    fn data(&mut self, bytes: &[u8]) -> Result<Bytes, ChunkError> {
        match self {
            Self::Chunked(decoder) => {
                let mut data = Vec::with_capacity(bytes.len());
                if let Err(error) = decoder.decode(bytes, &mut data) {
                    // What came before is part of the body, whether it came in the same read or not.
                    *self = Self::Broken(error);
                    if data.is_empty() {
                        return Err(error);
                    }
                }
                // Small chunks are shorter than the lines before them.
                data.shrink_to_fit();
                Ok(data.into())
            }
            Self::Length(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= most as u64;
                Ok(Bytes::copy_from_slice(bytes.get(..most).unwrap_or(bytes)))
            }
            Self::UntilClose => Ok(Bytes::copy_from_slice(bytes)),
            Self::Broken(error) => Err(*error),
        }
    }
}

/// What was read at once.
struct Arrived<T> {
    /// Its length, which is not zero.
    bytes: usize,
    /// What its reader made of it.
    seen: T,
}

/// Reads what has arrived into the stack of this thread and shows it to `look`; `None` at the end of the stream.
fn read_into<S: AsyncRead + Unpin, T>(
    stream: &mut S,
    cx: &mut Context<'_>,
    look: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<Option<Arrived<T>>>> {
    let mut room = [const { MaybeUninit::uninit() }; READ];
    let mut buffer = ReadBuf::uninit(&mut room);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    let bytes = buffer.filled();
    let arrived = (!bytes.is_empty()).then(|| Arrived { bytes: bytes.len(), seen: look(bytes) });
    Poll::Ready(Ok(arrived))
}

/// The head of a request whose body has `length` bytes.
fn encode(head: &http::request::Parts, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    for part in [head.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        // A value has no line end: `HeaderValue` permits none.
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    if length > 0 {
        out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Parses the head of a response; `None` if it is incomplete.
fn parse(text: &[u8]) -> Result<Option<ParsedHead>, UnbufferedError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = parsed.parse(text)? else { return Ok(None) };
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(http::Error::from)?;
    *response.version_mut() =
        if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let map: &mut HeaderMap = response.headers_mut();
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(http::Error::from)?;
        map.append(name, HeaderValue::from_bytes(header.value).map_err(http::Error::from)?);
    }
    Ok(Some(ParsedHead { response, length }))
}

/// The framing of the body of a response. A response that states it twice, or in a way that another reader may not
/// understand, has none.
///
/// RFC 9112, section 6.3
fn framing(response: &Response<()>) -> Result<BodyFraming, UnbufferedError> {
    if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(BodyFraming::Length(0));
    }
    let mut codings = response.headers().get_all(TRANSFER_ENCODING).iter();
    let mut lengths = response.headers().get_all(CONTENT_LENGTH).iter();
    match (codings.next(), lengths.next()) {
        (None, None) => Ok(BodyFraming::UntilClose),
        (None, Some(length)) if lengths.next().is_none() => {
            let text = length.to_str().ok();
            let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse().ok());
            length.map(BodyFraming::Length).ok_or(UnbufferedError::Framing)
        }
        (Some(coding), None) if codings.next().is_none() => {
            let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
            let is_sound = is_chunked && response.version() == Version::HTTP_11;
            is_sound
                .then(|| BodyFraming::Chunked(ChunkedDecoder::new()))
                .ok_or(UnbufferedError::Framing)
        }
        _ => Err(UnbufferedError::Framing),
    }
}

#[cfg(test)]
mod tests {
    use super::{HeadBounds, UnbufferedConnection, UnbufferedError};
    use bytes::Bytes;
    use http::Request;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const BOUNDS: HeadBounds = HeadBounds { head: 1000, before_body: 3000 };

    /// The status and the body of a response that a server sends in `parts` before it closes the connection.
    async fn read(parts: &[&[u8]]) -> Result<(u16, Vec<u8>), UnbufferedError> {
        let (client, mut server) = tokio::io::duplex(64);
        let mut connection = UnbufferedConnection::new(client, BOUNDS);
        let sending = async {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(server.read_u8().await.unwrap());
            }
            for part in parts {
                // A client that has refused the response has closed its end.
                if server.write_all(part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(server);
            request
        };
        let reading = async {
            let mut request = Request::new(Bytes::new());
            *request.uri_mut() = "/mcp?x=1".parse().unwrap();
            request.headers_mut().insert("host", "h".parse().unwrap());
            let response = connection.send(request.map(Into::into)).await?;
            let mut body = Vec::new();
            while let Some(data) = poll_fn(|cx| connection.poll_data(cx)).await {
                body.extend_from_slice(&data?);
            }
            drop(connection);
            Ok::<_, UnbufferedError>((response.status().as_u16(), body))
        };
        let (request, read) = tokio::join!(sending, reading);
        assert_eq!(request, b"GET /mcp?x=1 HTTP/1.1\r\nhost: h\r\n\r\n");
        read
    }

    async fn outcome(text: &str) -> Result<(u16, String), String> {
        let whole = read(&[text.as_bytes()]).await.map_err(|error| error.to_string());
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        let cut = read(&single).await.map_err(|error| error.to_string());
        assert_eq!(cut, whole, "{text:?}");
        whole.map(|(status, body)| (status, String::from_utf8(body).unwrap()))
    }

    #[tokio::test]
    async fn a_body_ends_where_its_one_framing_says() {
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        let hinted = format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab");
        let good = [
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nxyz",
                200,
                "ab",
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabxyz", 200, "ab"),
            ("HTTP/1.1 405\r\ncontent-length: 0\r\n\r\nxyz", 405, ""),
            ("HTTP/1.1 200 OK\r\n\r\nabxyz", 200, "abxyz"),
            ("HTTP/1.0 200 OK\r\n\r\nab", 200, "ab"),
            ("HTTP/1.1 204 No Content\r\n\r\nxyz", 204, ""),
            (&*hinted, 200, "a"),
        ];
        for (text, status, body) in good {
            assert_eq!(outcome(text).await, Ok((status, body.into())), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_response_that_is_cut_off_or_framed_twice_is_refused() {
        let framing = UnbufferedError::Framing.to_string();
        let cut = UnbufferedError::Incomplete.to_string();
        let head = "HTTP/1.1 200 OK\r\n";
        let bad = [
            ("content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", &framing),
            ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n", &framing),
            ("transfer-encoding: gzip, chunked\r\n\r\n", &framing),
            ("transfer-encoding: identity\r\n\r\n", &framing),
            ("content-length: 1\r\ncontent-length: 1\r\n\r\n", &framing),
            ("content-length: +1\r\n\r\n", &framing),
            ("content-length: \r\n\r\n", &framing),
            ("content-length: 99999999999999999999\r\n\r\n", &framing),
            ("content-length: 2\r\n\r\na", &cut),
            ("transfer-encoding: chunked\r\n\r\n2\r\na", &cut),
            ("transfer-encoding: chunked\r\n\r\n1\r\na\r\n", &cut),
            ("transfer-encoding: chunked\r\n\r\n0\r\n", &cut),
            ("content-length: 2\r\n", &cut),
            ("", &cut),
        ];
        for (text, error) in bad {
            assert_eq!(outcome(&format!("{head}{text}")).await, Err(error.clone()), "{text:?}");
        }
        let old = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(outcome(old).await, Err(framing.clone()));
        let switched = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
        assert_eq!(outcome(switched).await, Err(framing));
        for text in ["HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nx y: 1\r\n\r\n", "{}\r\n\r\n"] {
            assert!(matches!(read(&[text.as_bytes()]).await, Err(UnbufferedError::Head(_))));
        }
    }

    #[tokio::test]
    async fn what_comes_before_the_body_is_bounded() {
        let head = |length: usize| {
            let start = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: ";
            format!("{start}{}\r\n\r\n", "x".repeat(length - start.len() - 4))
        };
        assert!(outcome(&head(BOUNDS.head)).await.is_ok());
        let long = UnbufferedError::LongHead(BOUNDS.head).to_string();
        assert_eq!(outcome(&head(BOUNDS.head + 1)).await, Err(long.clone()));
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(BOUNDS.head));
        assert_eq!(outcome(&endless).await, Err(long));
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(BOUNDS.before_body / 28 + 1);
        assert_eq!(outcome(&interim).await, Err(UnbufferedError::Interim.to_string()));
        let many = "x: y\r\n".repeat(super::HEADERS + 1);
        let many = format!("HTTP/1.1 200 OK\r\n{many}\r\n");
        assert!(matches!(read(&[many.as_bytes()]).await, Err(UnbufferedError::Head(_))));
    }
}
