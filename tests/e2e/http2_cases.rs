//! Cases of RFC 9113 (HTTP/2) and RFC 7541 (HPACK), frame by frame against a listener with TLS. They are data, in
//! `http2_cases.json`, and the table of `docs/protocol.md` counts them.
//! `PORTCULLIS_BLESS=1 cargo nextest run -p e2e http2_cases` writes the table.
//!
//! A step is `TYPE STREAM FLAGS PAYLOAD`. A type is the name of the RFC or `x` and its number; flags are `-`, letters
//! (`E` END_STREAM or ACK, `H` END_HEADERS, `P` PADDED, `R` PRIORITY) or `x` and their bits. A payload is in parts: hexadecimal
//! bytes, `N*BYTE`, `preface`, the blocks `call`, `fields` (`call` without pseudo-headers) and `head` (the case's own), and
//! the `body` of a call; `call.1`, `body.2` and so on are halves. `RAW` sends a payload without a frame, `OPEN` begins a
//! call, `CALL` is a whole one, `WAIT` one that is not answered, and `SEE` is an expectation before the last one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};

use e2e::gateway::root;
use e2e::http2::{END_HEADERS, END_STREAM, Frame, Wire, frame, kind, packed};
use e2e::server::{Server, tool};
use e2e::{Era, golden};
use serde::Deserialize;
use serde_json::json;

use crate::http2::{Secure, authority, call_body, call_headers};

const PAGE: &str = "docs/protocol.md";
/// The lines of the page that the table stands between.
const BEGIN: &str = "<!-- begin: generated from tests/e2e/http2_cases.json -->\n";
const END: &str = "<!-- end: generated -->\n";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams that a client may have at once here.
const LIMITS: &str = "http2: {maxConcurrentStreams: 3}";
/// The argument of calls that the server does not answer.
const WAIT: &str = "wait";

/// The frame types of RFC 9113, section 6, and the error codes of section 7, by their numbers.
const TYPES: [&str; 10] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RST_STREAM",
    "SETTINGS",
    "PUSH_PROMISE",
    "PING",
    "GOAWAY",
    "WINDOW_UPDATE",
    "CONTINUATION",
];
const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The number of the RFC.
    rfc: String,
    section: String,
    title: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    send: Vec<String>,
    expect: String,
    /// How `head` differs from the head of a call.
    #[serde(default)]
    head: Head,
    /// The client does not begin with a preface of its own.
    #[serde(default)]
    silent: bool,
    /// What the RFC demands, where the library that speaks HTTP/2 does something else.
    demanded: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    first: Vec<(String, String)>,
    #[serde(default)]
    more: Vec<(String, String)>,
}

#[expect(clippy::disallowed_methods, reason = "data of the test, not a peer's")]
fn sections() -> Vec<Section> {
    serde_json::from_str(include_str!("http2_cases.json")).unwrap()
}

impl Head {
    fn block(&self) -> Vec<u8> {
        let call = call_headers(&[]);
        let kept = call.into_iter().filter(|(name, _)| !self.without.iter().any(|not| not == name));
        let own = |(name, value): &'_ (String, String)| (name.clone(), value.clone());
        let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let all: Vec<_> =
            self.first.iter().map(own).chain(kept).chain(self.more.iter().map(own)).collect();
        packed(&all.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>())
    }
}

/// A half of `whole`: the first for `1`.
fn half(whole: &[u8], which: &str) -> Vec<u8> {
    let (first, second) = whole.split_at(whole.len() / 2);
    if which == "1" { first.to_vec() } else { second.to_vec() }
}

fn byte_of(pair: &str) -> u8 {
    u8::from_str_radix(pair, 16).unwrap()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| byte_of(std::str::from_utf8(pair).unwrap())).collect()
}

impl Case {
    fn part(&self, part: &str) -> Vec<u8> {
        if let Some((whole, which)) = part.split_once('.') {
            return half(&self.part(whole), which);
        }
        if let Some((count, byte)) = part.split_once('*') {
            return bytes_of(byte).repeat(count.parse().unwrap());
        }
        match part {
            "preface" => PREFACE.to_vec(),
            "call" => packed(&call_headers(&[])),
            "fields" => {
                let fields = call_headers(&[]);
                let fields = fields.into_iter().filter(|(name, _)| !name.starts_with(':'));
                packed(&fields.collect::<Vec<_>>())
            }
            "head" => self.head.block(),
            "body" => call_body().into_bytes(),
            hex => bytes_of(hex),
        }
    }

    fn payload<'a>(&self, parts: impl Iterator<Item = &'a str>) -> Vec<u8> {
        parts.flat_map(|part| self.part(part)).collect()
    }

    /// The bytes that a step sends.
    fn bytes(&self, step: &str) -> Vec<u8> {
        let mut words = step.split(' ').filter(|word| !word.is_empty());
        let what = words.next().unwrap();
        if what == "RAW" {
            return self.payload(words);
        }
        let stream = words.next().unwrap().parse().unwrap();
        let open = frame(kind::HEADERS, END_HEADERS, stream, &packed(&call_headers(&[])));
        let whole = |body: &str| {
            [open.clone(), frame(kind::DATA, END_STREAM, stream, body.as_bytes())].concat()
        };
        match what {
            "OPEN" => open,
            "CALL" => whole(&call_body()),
            "WAIT" => whole(&call_body().replace("\"hi\"", &format!("\"{WAIT}\""))),
            _ => {
                let flags = flags_of(words.next().unwrap());
                frame(type_of(what), flags, stream, &self.payload(words))
            }
        }
    }

    /// What is wrong with the gateway's answers, if anything is.
    fn run(&self, secure: &Secure) -> Result<(), String> {
        let mut wire = if self.silent {
            Wire::silent(secure.address(), &secure.config)
        } else {
            secure.wire()
        };
        let mut bytes = Vec::new();
        for step in &self.send {
            match step.strip_prefix("SEE ") {
                None => bytes.extend(self.bytes(step)),
                Some(expected) => {
                    wire.send(&std::mem::take(&mut bytes));
                    self.see(&mut wire, expected)?;
                }
            }
        }
        // The connection may be closed while a part is on its way.
        wire.send(&bytes);
        self.see(&mut wire, &self.expect)?;
        match self.expect.split(' ').next() {
            // No frame may follow.
            Some("connection" | "close") => match wire.frame() {
                None => Ok(()),
                Some(frame) => Err(format!("{frame:?} behind the end")),
            },
            // The connection is as good as before.
            _ if self.leaves() => Ok(()),
            _ => self.see(&mut wire, "served"),
        }
    }

    /// Whether the client itself ends the connection.
    fn leaves(&self) -> bool {
        self.send.iter().any(|step| step.starts_with("GOAWAY"))
    }

    /// Reads frames until one is what is expected; an end of a stream or of the connection that is not is an error.
    fn see(&self, wire: &mut Wire, expected: &str) -> Result<(), String> {
        let words: Vec<&str> = expected.split(' ').collect();
        if words[0] == "served" && !wire.send(&frame(kind::PING, 0, 0, b"still on")) {
            return Err("the connection is closed".into());
        }
        loop {
            let Some(frame) = wire.frame() else {
                return if words[0] == "close" { Ok(()) } else { Err("closed".into()) };
            };
            if self.is_it(&frame, &words) {
                return Ok(());
            }
            let ends = frame.kind <= kind::HEADERS && frame.flags & END_STREAM != 0;
            if ends && matches!(words[0], "connection" | "stream" | "close") {
                return Err("answered".into());
            }
            if matches!(frame.kind, kind::GOAWAY | kind::RST_STREAM) {
                let code = CODES[usize::try_from(frame.code()).unwrap()];
                let what = TYPES[usize::from(frame.kind)];
                return Err(format!("{what} {} {code}", frame.stream));
            }
        }
    }

    fn is_it(&self, frame: &Frame, words: &[&str]) -> bool {
        let is = |kind: u8, stream: &str| frame.kind == kind && frame.stream.to_string() == stream;
        let answers = frame.flags & END_STREAM != 0;
        match *words {
            ["connection", code] => is(kind::GOAWAY, "0") && frame.code() == code_of(code),
            ["stream", stream, code] => {
                is(kind::RST_STREAM, stream) && frame.code() == code_of(code)
            }
            // `:status: 200` is the eighth entry of the static table.
            ["200", stream] => is(kind::HEADERS, stream) && frame.payload[0] == 0x88,
            ["answer", stream] => is(kind::HEADERS, stream) && !answers,
            ["head", stream] => is(kind::HEADERS, stream) && answers,
            ["end", stream] => answers && (is(kind::DATA, stream) || is(kind::HEADERS, stream)),
            ["data", stream, length] => {
                is(kind::DATA, stream) && frame.payload.len().to_string() == length
            }
            ["settings", stream] => is(kind::SETTINGS, stream) && !answers,
            ["acknowledged"] => is(kind::SETTINGS, "0") && answers,
            ["pong", payload] => {
                is(kind::PING, "0") && answers && frame.payload == self.part(payload)
            }
            ["served"] => is(kind::PING, "0") && answers && frame.payload == b"still on",
            ["close"] => false,
            _ => panic!("{}: no such expectation: {words:?}", self.name),
        }
    }
}

fn type_of(name: &str) -> u8 {
    match name.strip_prefix('x') {
        Some(number) => number.parse().unwrap(),
        None => u8::try_from(TYPES.iter().position(|found| *found == name).unwrap()).unwrap(),
    }
}

fn code_of(name: &str) -> u32 {
    u32::try_from(CODES.iter().position(|found| *found == name).unwrap()).unwrap()
}

fn flags_of(text: &str) -> u8 {
    if let Some(bits) = text.strip_prefix('x') {
        return u8::from_str_radix(bits, 16).unwrap();
    }
    let bit = |flag: char| match flag {
        '-' => 0,
        'E' => END_STREAM,
        'H' => END_HEADERS,
        'P' => 0x8,
        'R' => 0x20,
        _ => panic!("no such flag: {flag}"),
    };
    text.chars().map(bit).fold(0, |all, one| all | one)
}

/// A server that answers calls, and those that are to wait when the gateway has given them up.
fn patient() -> Server {
    Server::with(Era::Modern, json!([tool("echo")]), |call, stream| {
        let text = call.body["params"]["arguments"]["text"].as_str().unwrap();
        if text == WAIT {
            return matches!(stream.read(&mut [0; 16]), Ok(1..));
        }
        stream.write_all(&call.text(text)).is_ok()
    })
}

#[test]
fn every_case_of_http2_and_hpack_ends_as_it_has_to_and_other_clients_are_served() {
    let server = patient();
    let secure = Secure::before(&server.url(), &authority(), LIMITS);
    let mut wrong = String::new();
    for section in sections() {
        for case in &section.cases {
            if let Err(found) = case.run(&secure) {
                let (name, expected) = (&case.name, &case.expect);
                writeln!(wrong, "{} {name}: {expected}, not {found}", section.section).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    secure.is_served();
}

/// How many cases of a section end like this, by the first word of what is expected.
fn count(section: &Section, is: impl Fn(&str) -> bool) -> usize {
    section.cases.iter().filter(|case| is(case.expect.split(' ').next().unwrap())).count()
}

/// How the cases of a section end: all of them, those that are served, whose stream is reset, whose connection ends, and
/// those that end in another way than the RFC demands.
fn counts(section: &Section) -> [usize; 5] {
    let ended = count(section, |end| matches!(end, "connection" | "close"));
    let reset = count(section, |end| end == "stream");
    let cases = section.cases.len();
    let other = section.cases.iter().filter(|case| case.demanded.is_some()).count();
    [cases, cases - ended - reset, reset, ended, other]
}

fn row(title: &str, [cases, served, reset, ended, other]: [usize; 5]) -> String {
    format!("| {title} | {cases} | {served} | {reset} | {ended} | {other} |\n")
}

fn table(sections: &[Section]) -> String {
    let mut text = String::from(
        "| section | cases | served | stream reset | connection ended | not as the RFC demands |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut all = [0; 5];
    let mut others = BTreeMap::<_, Vec<_>>::new();
    for section in sections {
        let counts = counts(section);
        all.iter_mut().zip(counts).for_each(|(sum, one)| *sum += one);
        let (rfc, number, title) = (&section.rfc, &section.section, &section.title);
        text.push_str(&row(&format!("RFC {rfc}, {number} {title}"), counts));
        for case in &section.cases {
            if let Some(demanded) = &case.demanded {
                let name = format!("{number} {}", case.name);
                others.entry((demanded, &case.expect)).or_default().push(name);
            }
        }
    }
    text.push_str(&row("**all**", all));
    text.push_str("\nNot as the RFC demands:\n\n");
    for ((demanded, found), names) in others {
        writeln!(text, "* `{demanded}`, here `{found}`: {}.", names.join("; ")).unwrap();
    }
    text
}

#[test]
fn the_table_of_http2_cases_is_what_the_data_gives_and_no_case_is_there_twice() {
    let sections = sections();
    let mut seen = BTreeSet::new();
    for section in &sections {
        for case in &section.cases {
            assert!(seen.insert((&section.section, &case.name)), "{}: twice", case.name);
        }
    }
    let file = root().join(PAGE);
    let page = fs::read_to_string(&file).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let text = format!("{before}{BEGIN}{}{END}{after}", table(&sections));
    golden::compare([(&*file, &*text)]);
}
