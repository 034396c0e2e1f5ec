//! The two ends of the benchmark: a server that answers as fast as it can, and a load that asks.
//!
//! Both speak just enough HTTP/1.1 to be no part of what is measured. `run` puts a gateway or
//! nginx between them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a tool for measuring"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::panic,
    reason = "a tool for measuring"
)]

mod load;
mod stub;

use std::env;
use std::path::Path;

use e2e::issuer::Key;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stub"] => runtime.block_on(stub::serve(false)),
        ["stub", "fresh"] => runtime.block_on(stub::serve(true)),
        ["log", file, count] => log(file.as_ref(), count.parse().unwrap()),
        ["tokens", folder, count] => tokens(folder.as_ref(), count.parse().unwrap()),
        ["first", address, era, requests] => {
            runtime.block_on(load::first(address, era, requests.parse().unwrap()));
        }
        ["load", address, era, tool, connections, requests] => runtime.block_on(load::run(
            address,
            era,
            tool,
            connections.parse().unwrap(),
            requests.parse().unwrap(),
        )),
        ["turns", era, tool, connections, turns, requests, ref addresses @ ..] => {
            let [connections, turns, requests] =
                [connections, turns, requests].map(|number| number.parse().unwrap());
            runtime.block_on(load::turns(era, tool, connections, (turns, requests), addresses));
        }
        _ => panic!(
            "bench stub [fresh] | bench load ADDRESS ERA TOOL CONNECTIONS REQUESTS | bench turns ERA TOOL CONNECTIONS TURNS REQUESTS ADDRESS... | bench first ADDRESS ERA REQUESTS | bench log FILE COUNT | bench tokens FOLDER COUNT"
        ),
    }
}

/// Writes a log of as many records as calls leave in a month, the way the gateway does.
fn log(file: &Path, count: u64) {
    use audit_log::chain::{HashChain, content};
    use audit_log::note::NoteSigner;
    use std::io::Write as _;

    let signer = NoteSigner::generate("bench").unwrap();
    let mut chain = HashChain::new("0011223344556677");
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).unwrap());
    let ends = r#""policy":"sha256:0000000000000000000000000000000000000000000000000000000000000000","schema":"portcullis.audit/v3","time":"2026-11-21T08:00:00.000000Z"}"#;
    let mut write = |chain: &mut HashChain, members: &str| {
        let mut line = format!("{{{members},{ends}").into_bytes();
        let place = chain.next(&content(&line));
        place.seal(&mut line);
        chain.push(&place);
        out.write_all(&line).unwrap();
    };
    let key = signer.public().text();
    let start =
        format!(r#""chain":"0011223344556677","event":"start","key":"{key}","peaks":[],"size":0"#);
    write(&mut chain, &start);
    for n in 1..count {
        if n % 1000 == 0 {
            let note = serde_json::to_string(&signer.note(&chain.id, &chain.tree)).unwrap();
            let members =
                format!(r#""chain":"0011223344556677","event":"checkpoint","note":{note}"#);
            write(&mut chain, &members);
            continue;
        }
        write(
            &mut chain,
            &format!(
                r#""argumentDigest":"hmac-sha256:{n:064x}","bytesIn":209,"bytesOut":114,"chain":"0011223344556677","decision":"allow","definition":"mcp-pin/v1:tool:sha256:d33b55751e8461ae02130df838078b0f9c70b9b180b5c6957f4eb33fc99de7df","durationMicros":{{"gateway":118,"total":2563,"upstream":2445}},"era":"modern","event":"exchange","id":"01a1fffb-d9a7-7a9f-b6db-b3b5{n:08x}","listener":"main","method":"tools/call","outcome":"answered","peer":"127.0.0.1:56502""#
            ),
        );
    }
    out.flush().unwrap();
}

/// Writes the keys of an issuer, and tokens of it, into a folder.
fn tokens(folder: &Path, count: usize) {
    let key = Key::es256("k1");
    let keys = serde_json::json!({ "keys": [key.jwk()] });
    std::fs::write(folder.join("keys.json"), keys.to_string()).unwrap();
    let now = e2e::issuer::now();
    let tokens = (0..count).map(|n| {
        let claims = serde_json::json!({
            "iss": "https://issuer.example", "sub": "bench", "aud": "https://bench.example/mcp",
            "client_id": "load", "iat": now, "exp": now + 3000, "jti": n.to_string(), "groups": ["bench"],
        });
        key.token(&key.header().to_string(), &claims.to_string()) + "\n"
    });
    std::fs::write(folder.join("tokens"), tokens.collect::<String>()).unwrap();
}

/// The length of the head in `bytes`, its empty line included, and of the body that follows.
fn framing(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).unwrap().to_ascii_lowercase();
    // A request for a stream, or for the end of a session.
    if text.starts_with("get ") || text.starts_with("delete ") {
        return Some((head, 0));
    }
    let length = text.split("content-length:").nth(1).expect("an answer without a length");
    let length = length.split("\r\n").next().unwrap().trim().parse().unwrap();
    Some((head, length))
}
