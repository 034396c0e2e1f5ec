//! W3C Trace Context: the trace that an exchange belongs to, and the spans of the gateway in it.
//!
//! `params._meta` takes precedence over HTTP headers (SEP-414). The caller chooses these values, so no decision depends
//! on them.

use std::fmt;

use json::hex;

/// Most bytes and most members of a `tracestate` that is passed on (W3C Trace Context, section 3.3.1.5).
const STATE: (usize, usize) = (512, 32);

/// Span of a peer, as the peer states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentSpan {
    /// Id of the trace.
    pub trace: u128,
    /// Id of the span.
    pub span: u64,
    /// Whether the peer records the span.
    pub sampled: bool,
    /// The vendors' data (`tracestate`).
    pub state: Option<Box<str>>,
    /// Whether it was in the message body. Trace headers of a client are never sent to a server (vector AV-46).
    pub is_said: bool,
}

impl ParentSpan {
    /// Parses a `traceparent`; `None` if it is not valid.
    ///
    /// <https://www.w3.org/TR/trace-context/#traceparent-header>
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        if text.len() != 55 || !text.bytes().all(lower) {
            return None;
        }
        let mut parts = text.split('-');
        let mut part = |length: usize| parts.next().filter(|part| part.len() == length);
        let version = part(2)?;
        let (trace, span, flags) = (part(32)?, part(16)?, part(2)?);
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let good = version != "ff" && trace != 0 && span != 0;
        good.then_some(Self { trace, span, sampled: flags & 1 == 1, state: None, is_said: false })
    }

    /// Adds the `tracestate` that came with it, if that is valid.
    #[must_use]
    pub fn with_state(self, state: Option<&str>) -> Self {
        let (bytes, members) = STATE;
        let fits = |text: &&str| text.len() <= bytes && text.split(',').count() <= members;
        let parts = state.filter(fits).map(|text| {
            // Only the validated members are passed on.
            text.split(',').map(|member| member.trim_matches([' ', '\t'])).collect::<Vec<_>>()
        });
        let good = parts.filter(|parts| parts.iter().all(|member| is_member(member)));
        Self { state: good.map(|parts| parts.join(",").into()), ..self }
    }
}

/// Whether a text is `key=value` without characters that could end a header or a line.
fn is_member(text: &str) -> bool {
    let key =
        |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let value = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    text.split_once('=').is_some_and(|(name, text)| {
        !name.is_empty() && name.bytes().all(key) && !text.is_empty() && text.bytes().all(value)
    })
}

/// Trace context that is sent to an upstream server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropagatedContext {
    /// Value of `traceparent`, version 00.
    pub parent: Box<str>,
    /// Value of `tracestate`, if there is one.
    pub state: Option<Box<str>>,
}

/// Position of an exchange in its trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Id of the trace.
    pub id: u128,
    /// Span id of the exchange.
    pub span: u64,
    /// Span of the client that the exchange is part of.
    pub parent: Option<ParentSpan>,
    /// Span of the client that is linked, but is not the parent.
    pub link: Option<ParentSpan>,
    /// Whether the exchange is recorded.
    pub sampled: bool,
}

impl Trace {
    /// Starts a trace for the exchange with this id. The id is random enough to be the trace id.
    #[must_use]
    pub fn new(id: u128) -> Self {
        let [.., a, b, c, d, e, f, g, h] = id.to_be_bytes();
        let span = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Self { id, span, parent: None, link: None, sampled: false }
    }

    /// Makes the exchange part of the parent's trace.
    pub fn join(&mut self, parent: Option<ParentSpan>, link: Option<ParentSpan>) {
        if let Some(parent) = &parent {
            self.id = parent.trace;
        }
        self.parent = parent;
        self.link = link;
    }

    /// Span id of the request to the upstream server. It differs from that of the exchange in one bit, which is always
    /// 0 there.
    #[must_use]
    pub fn upstream(&self) -> u64 {
        self.span ^ 1 << 62
    }

    /// The context for the upstream server: the gateway's span if it is recorded, else the span in the client's
    /// message; `None` if there is neither.
    #[must_use]
    pub fn told(&self) -> Option<PropagatedContext> {
        let (span, flags) = match &self.parent {
            _ if self.sampled => (self.upstream(), 1),
            Some(parent) if parent.is_said => (parent.span, u8::from(parent.sampled)),
            Some(_) | None => return None,
        };
        let parent = format!("00-{:032x}-{span:016x}-{flags:02x}", self.id).into();
        let said = self.parent.as_ref().filter(|parent| parent.is_said);
        let state = said.and_then(|parent| parent.state.clone());
        Some(PropagatedContext { parent, state })
    }
}

impl fmt::Display for Trace {
    /// Writes the trace id in hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.id.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::{ParentSpan, Trace};

    #[test]
    fn only_what_is_written_exactly_is_believed() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        let read = ParentSpan::read(good).unwrap();
        assert!(read.sampled && read.span == 0x00f0_67aa_0ba9_02b7);
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7",
            "00-0AF7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-more",
            "000af7651916cd43dd8448eb211c80319c--00f067aa0ba902b7--01",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-\u{e9}",
        ] {
            assert_eq!(ParentSpan::read(bad), None, "{bad}");
        }
        let state = |text: &str| read.clone().with_state(Some(text)).state.is_some();
        assert!(state("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE") && state("a@b=1"));
        let long = vec!["a=1"; 33].join(",");
        for bad in [
            "",
            "a",
            "a=1\r\nx: y",
            "a=1,\r\nb=2",
            "a=1,\u{2028}b=2",
            "a=1,,b=2",
            "A=1",
            "a=\u{202e}",
            &"a".repeat(600),
            &long,
        ] {
            assert!(!state(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_server_hears_of_our_span_or_of_the_clients() {
        let id = 0x0190_0000_0000_7000_8000_0000_0000_0001;
        let mut trace = Trace::new(id);
        assert_eq!(trace.told(), None);
        trace.sampled = true;
        assert_eq!(*trace.told().unwrap().parent, format!("00-{id:032x}-c000000000000001-01"));
        let mut parent =
            ParentSpan::read("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01").unwrap();
        trace.sampled = false;
        trace.join(Some(parent.clone()), None);
        assert_eq!(trace.told(), None, "it was in a header");
        parent.is_said = true;
        trace.join(Some(parent), None);
        let told = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        assert_eq!(&*trace.told().unwrap().parent, told);
    }
}
