//! Bytes that are no acceptable request: each a clear answer, a record, and nothing sent on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use e2e::client::{get, post, raw, read};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::{Server, tool};
use e2e::{ERAS, Era};
use serde_json::json;

fn started() -> (Server, Gateway) {
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway =
        Config::of(&server.url()).limits("requestBody: 64KiB\nrequestTimeout: 300ms").start();
    (server, gateway)
}

#[test]
fn the_http_around_a_message_must_fit() {
    let (server, gateway) = started();
    let host = gateway.address.to_string();
    let good =
        [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let with = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let mut all = vec![("host", host.as_str()), ("x-api-key", ANA)];
        all.extend(headers);
        let bytes = String::from_utf8(post(path, &all, body)).unwrap();
        let answer = raw(gateway.address, bytes.replacen("POST", method, 1).as_bytes());
        (answer.status, gateway.last()["reason"].as_str().unwrap_or("none").to_owned())
    };
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let before = gateway.exchanges().len();
    type Row<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, &'a str, (u16, &'a str));
    let rows: Vec<Row<'_>> = vec![
        ("POST", "/mcp", good.to_vec(), hello, (200, "none")),
        (
            "POST",
            "/mcp",
            vec![good[1], ("content-type", "application/json; charset=UTF-8")],
            hello,
            (200, "none"),
        ),
        ("POST", "/mcp", vec![good[1]], hello, (415, "media-type")),
        ("POST", "/mcp", vec![good[1], ("content-type", "text/plain")], hello, (415, "media-type")),
        (
            "POST",
            "/mcp",
            vec![good[1], ("content-type", "application/json; charset=utf-16")],
            hello,
            (415, "media-type"),
        ),
        ("POST", "/mcp", vec![good[1], good[0], good[0]], hello, (415, "media-type")),
        (
            "POST",
            "/mcp",
            vec![good[0], good[1], ("content-encoding", "gzip")],
            hello,
            (415, "media-type"),
        ),
        (
            "POST",
            "/mcp",
            vec![good[0], ("accept", "application/json")],
            hello,
            (406, "not-acceptable"),
        ),
        ("POST", "/mcp", vec![good[0]], hello, (406, "not-acceptable")),
        ("POST", "/mcp/", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "//mcp", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "/%6dcp", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "/x/../mcp", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "/mcp#x", good.to_vec(), hello, (400, "ambiguous-framing")),
        ("GET", "/mcp", good.to_vec(), "", (400, "invalid-session")),
        ("GET", "/mcp", vec![("accept", "application/json")], "", (406, "not-acceptable")),
        (
            "GET",
            "/mcp",
            vec![good[1], ("mcp-protocol-version", "2026-07-28")],
            "",
            (405, "http-method"),
        ),
        ("PUT", "/mcp", good.to_vec(), hello, (405, "http-method")),
        ("DELETE", "/mcp", good.to_vec(), "", (400, "invalid-session")),
        ("POST", "/mcp", good.to_vec(), "", (400, "invalid-json")),
    ];
    let count = rows.len();
    for (method, path, headers, body, expected) in rows {
        let (status, reason) = with(method, path, &headers, body);
        assert_eq!((status, reason.as_str()), expected, "{method} {path} {headers:?}");
    }
    assert_eq!(gateway.exchanges().len(), before + count, "each has one record");
    assert!(server.tool_calls().is_empty());
}

/// Vectors PV-01 to PV-19, in both eras.
#[test]
fn a_message_that_could_be_read_in_two_ways_is_refused() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let good = ana.message(
            &json!(7),
            "tools/call",
            json!({ "name": "read", "arguments": { "text": "x" } }),
        );
        let change = |from: &str, to: &str| {
            assert!(good.contains(from), "{from} in {good}");
            good.replacen(from, to, 1)
        };
        let deep = format!("\"arguments\":{{\"d\":{}{}", "[".repeat(80), "]".repeat(80));
        for (what, body, code, reason) in [
            (
                "a duplicate key",
                change("\"name\":\"read\"", "\"name\":\"read\",\"name\":\"drop\""),
                -32600,
                "invalid-json",
            ),
            (
                "an escaped duplicate",
                change("\"name\":\"read\"", "\"name\":\"read\",\"n\\u0061me\":\"drop\""),
                -32600,
                "invalid-json",
            ),
            (
                "a duplicate in arguments",
                change("\"text\":\"x\"", "\"text\":\"x\",\"text\":\"y\""),
                -32600,
                "invalid-json",
            ),
            (
                "another case",
                change("\"name\":\"read\"", "\"name\":\"read\",\"Name\":\"drop\""),
                -32600,
                "invalid-message",
            ),
            (
                "a long s",
                change("\"arguments\"", "\"argument\u{17f}\":{},\"arguments\""),
                -32600,
                "invalid-message",
            ),
            (
                "envelope in another case",
                change("\"method\"", "\"Method\""),
                -32600,
                "invalid-message",
            ),
            (
                "an unknown member",
                change("\"jsonrpc\"", "\"extra\":1,\"jsonrpc\""),
                -32600,
                "invalid-message",
            ),
            ("a batch", format!("[{good}]"), -32600, "invalid-message"),
            ("an empty batch", "[]".to_owned(), -32600, "invalid-message"),
            ("a lone surrogate", change("\"x\"", "\"\\ud800\""), -32700, "invalid-json"),
            ("a byte order mark", format!("\u{feff}{good}"), -32700, "invalid-json"),
            ("two texts", format!("{good}{good}"), -32700, "invalid-json"),
            (
                "a trailing comma",
                change("\"text\":\"x\"", "\"text\":\"x\","),
                -32700,
                "invalid-json",
            ),
            ("a comment", format!("{good}//"), -32700, "invalid-json"),
            ("a number that is none", change("\"x\"", "NaN"), -32700, "invalid-json"),
            ("a leading zero", change("\"x\"", "01"), -32700, "invalid-json"),
            (
                "too deep",
                change("\"arguments\":{", &deep).replacen("]\"text\"", "],\"text\"", 1),
                -32600,
                "invalid-json",
            ),
            ("an id of null", change("\"id\":7", "\"id\":null"), -32600, "invalid-message"),
            ("a fractional id", change("\"id\":7", "\"id\":7.5"), -32600, "invalid-message"),
            (
                "result and method",
                change("\"id\":7", "\"id\":7,\"result\":{}"),
                -32600,
                "invalid-message",
            ),
            (
                "NUL in a name",
                change("\"read\"", "\"re\\u0000ad\""),
                if era == Era::Modern { -32020 } else { -32602 },
                if era == Era::Modern { "header-mismatch" } else { "invalid-params" },
            ),
        ] {
            let answer = raw(gateway.address, &ana.bytes("tools/call", Some("read"), &body));
            assert_eq!(answer.code(), code, "{era:?}: {what}: {}", answer.body);
            assert_eq!(gateway.last()["reason"], reason, "{what}");
            assert_eq!(gateway.last()["outcome"], "refused", "{what}");
        }
        let mut bytes = ana.bytes("tools/call", Some("read"), &good);
        let at = bytes.windows(3).rposition(|w| w == b"\"x\"").unwrap();
        bytes[at + 1] = 0xff;
        assert_eq!(raw(gateway.address, &bytes).code(), -32700);
        assert!(server.tool_calls().is_empty());
        assert_eq!(raw(gateway.address, &ana.bytes("tools/call", Some("read"), &good)).status, 200);
    }
}

#[test]
fn headers_that_say_something_else_are_refused() {
    let (server, gateway) = started();
    let ana = gateway.client(Era::Modern, ANA);
    let body = ana.message(&json!(1), "tools/call", json!({ "name": "read" }));
    let good = String::from_utf8(ana.bytes("tools/call", Some("read"), &body)).unwrap();
    for (from, to, status, code) in [
        ("mcp-name: read", "mcp-name: drop", 400, -32020),
        ("mcp-name: read\r\n", "", 400, -32020),
        ("mcp-name: read", "mcp-name: read\r\nmcp-name: read", 400, -32020),
        ("mcp-method: tools/call", "mcp-method: tools/list", 400, -32020),
        ("mcp-method: tools/call\r\n", "", 400, -32020),
        ("mcp-protocol-version: 2026-07-28", "mcp-protocol-version: 2025-11-25", 400, -32020),
        ("mcp-protocol-version: 2026-07-28\r\n", "", 400, -32020),
    ] {
        assert!(good.contains(from));
        let answer = raw(gateway.address, good.replacen(from, to, 1).as_bytes());
        assert_eq!((answer.status, answer.code()), (status, code), "{to}");
    }
    let old = body.replace("2026-07-28", "1999-01-01");
    let bytes = String::from_utf8(ana.bytes("tools/call", Some("read"), &old)).unwrap();
    let answer = raw(
        gateway.address,
        bytes.replace("version: 2026-07-28", "version: 1999-01-01").as_bytes(),
    );
    assert_eq!((answer.status, answer.code()), (400, -32022));
    assert_eq!(answer.json()["error"]["data"]["supported"][0], "2026-07-28");
    let unknown = ana.ask("no/such", json!({}));
    assert_eq!((unknown.status, unknown.code()), (404, -32601));
    assert!(server.tool_calls().is_empty());
}

/// SPEC 2025-11-25 basic/transports#session-management: a legacy client takes 404 for the end of its
/// session, so what concerns one request alone is told in the error alone.
#[test]
fn a_legacy_client_keeps_its_session_when_a_request_is_refused() {
    let server = Server::echo(Era::Legacy, &["read"]);
    let gateway = Config::of(&server.url()).start();
    let ana = gateway.client(Era::Legacy, ANA);
    let unknown = ana.ask("no/such", json!({}));
    assert_eq!((unknown.status, unknown.code()), (200, -32601));
    let params = ana.ask("tools/call", json!({ "name": 7 }));
    assert_eq!((params.status, params.code()), (200, -32602));
    assert_eq!(gateway.last()["era"], "legacy");
    assert_eq!(ana.tools(), ["read"]);
}

#[test]
fn a_body_is_bounded_in_size_and_in_time() {
    let (server, gateway) = started();
    let ana = gateway.client(Era::Modern, ANA);
    let long = "x".repeat(70_000);
    let body =
        ana.message(&json!(1), "tools/call", json!({ "name": "read", "arguments": { "t": long } }));
    let answer = raw(gateway.address, &ana.bytes("tools/call", Some("read"), &body));
    assert_eq!((answer.status, gateway.last()["reason"].clone()), (413, json!("body-length")));
    // A body that never comes.
    let bytes = String::from_utf8(ana.bytes("tools/call", Some("read"), "{}")).unwrap();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream
        .write_all(
            bytes.replace("content-length: 2\r\n\r\n{}", "content-length: 2\r\n\r\n{").as_bytes(),
        )
        .unwrap();
    assert_eq!(read(&mut stream).status, 408);
    assert_eq!(gateway.last()["reason"], "body-time");
    // A body whose length lies.
    let chunked = bytes.replace(
        "content-length: 2\r\n\r\n{}",
        &format!("transfer-encoding: chunked\r\n\r\n20000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x20000)),
    );
    assert_eq!(raw(gateway.address, chunked.as_bytes()).status, 413);
    for smuggled in
        ["content-length: 5\r\ncontent-length: 6\r\n\r\n{}", "content-length: +2\r\n\r\n{}"]
    {
        let text = bytes.replace("content-length: 2\r\n\r\n{}", smuggled);
        assert_eq!(raw(gateway.address, text.as_bytes()).status, 400, "{smuggled}");
    }
    assert!(server.tool_calls().is_empty());
}

#[test]
fn the_operator_sees_health_and_counts() {
    let (server, gateway) = started();
    let ops = gateway.ops.unwrap();
    assert_eq!(get(ops, "/livez").status, 200);
    assert_eq!(get(ops, "/readyz").status, 200);
    let ana = gateway.client(Era::Modern, ANA);
    assert_eq!(ana.call("read", &json!({})).status, 200);
    assert_eq!(ana.call("other", &json!({})).status, 200);
    let metrics = gateway.metrics();
    for line in [
        "portcullis_exchanges_total{outcome=\"answered\"} 1",
        "portcullis_exchanges_total{outcome=\"denied\"} 1",
        "portcullis_denials_total{reason=\"unknown-tool\"} 1",
        "portcullis_upstream_up{server=\"up\"} 1",
        "portcullis_upstream_duration_seconds_count{server=\"up\"} 1",
        "portcullis_gateway_duration_seconds_count 2",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert_eq!(get(ops, "/mcp").status, 404);
    drop(server);
}

/// Requests that two readers would cut in two places (vectors PV-20 to PV-25): refused, and nothing
/// of them reaches a server.
#[test]
fn what_could_be_framed_in_two_ways_is_refused() {
    let (server, gateway) = started();
    let body = gateway.client(Era::Modern, ANA).message(
        &json!(1),
        "tools/call",
        json!({ "name": "read" }),
    );
    let length = body.len();
    let common = format!(
        "host: {}\r\nauthorization: Bearer {ANA}\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: read\r\n\
         content-type: application/json\r\n",
        gateway.address
    );
    let chunk = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let good = format!("POST /mcp HTTP/1.1\r\n{common}content-length: {length}\r\n\r\n{body}");
    assert_eq!(raw(gateway.address, good.as_bytes()).status, 200);
    let before = server.tool_calls().len();
    for framing in [
        format!("content-length: {length}\r\ncontent-length: {}\r\n\r\n{body}", length + 1),
        format!("content-length: +{length}\r\n\r\n{body}"),
        format!("content-length: {length}, {length}1\r\n\r\n{body}"),
        format!("content-length: -1\r\n\r\n{body}"),
        format!("transfer-encoding: xchunked\r\n\r\n{chunk}"),
        format!("transfer-encoding: chunked, identity\r\n\r\n{chunk}"),
        format!("transfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF0\r\n{body}\r\n0\r\n\r\n"),
        format!("transfer-encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n"),
        format!("x : y\r\ncontent-length: {length}\r\n\r\n{body}"),
        format!("x: a\r\n b\r\ncontent-length: {length}\r\n\r\n{body}"),
        format!("x: a\0b\r\ncontent-length: {length}\r\n\r\n{body}"),
        format!("x: {}\r\ncontent-length: {length}\r\n\r\n{body}", "a".repeat(70_000)),
        format!("{}content-length: {length}\r\n\r\n{body}", "x: y\r\n".repeat(200)),
        format!("upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: {length}\r\n\r\n{body}"),
    ] {
        let text = format!("POST /mcp HTTP/1.1\r\n{common}{framing}");
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        drop(stream.write_all(text.as_bytes()));
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        // Closed without a word is a refusal too.
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        let shown: String = framing.chars().take(60).collect();
        assert!(refused, "{shown:?}: {answer}");
    }
    let old = good.replace("HTTP/1.1", "HTTP/1.0");
    assert!(raw(gateway.address, old.as_bytes()).status >= 400);
    assert_eq!(server.tool_calls().len(), before);
    assert_eq!(raw(gateway.address, good.as_bytes()).status, 200);
}

/// A reader that ends trailers at a line feed sees a request in them that the gateway does not see: what follows on the
/// connection has two readings.
#[test]
fn after_trailers_that_end_in_two_ways_nothing_is_answered() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let body = ana.message(&json!(1), "tools/call", json!({ "name": "read" }));
        let plain = ana.bytes("tools/call", Some("read"), &body);
        let plain = String::from_utf8(plain).unwrap();
        let (head, _) = plain.split_once("\r\n\r\n").unwrap();
        let head: String = head
            .split("\r\n")
            .filter(|line| !line.to_ascii_lowercase().starts_with("content-length"))
            .filter(|line| !line.to_ascii_lowercase().starts_with("connection"))
            .map(|line| format!("{line}\r\n"))
            .collect();
        let chunks = |more: &str, trailers: &str| {
            let length = body.len();
            format!(
                "{head}{more}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n{trailers}"
            )
        };
        let (hidden, before) = ("GET /mcp HTTP/1.1\r\nHost: h\r\n\r\n", server.tool_calls().len());
        for (trailers, answered) in [
            ("x: y\r\n\r\n".to_owned(), 2),
            (format!("x: y\n\n{hidden}"), 1),
            (format!("x: y\n\r\n{hidden}"), 1),
        ] {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            let last = chunks("connection: close\r\n", "\r\n");
            stream.write_all((chunks("", &trailers) + &last).as_bytes()).unwrap();
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            let answer = String::from_utf8_lossy(&answer);
            assert_eq!(
                answer.matches("HTTP/1.1 200").count(),
                answered,
                "{era:?} {trailers:?}: {answer}"
            );
        }
        assert_eq!(server.tool_calls().len(), before + 4, "{era:?}");
    }
}

/// A proxy in front may have taken the other of the two lengths: the request is answered, is on record, and
/// is the last of its connection.
#[test]
fn a_head_that_is_no_http_is_refused_and_recorded() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let good =
            String::from_utf8(ana.call_bytes(&json!(1), &json!({ "name": "read" }))).unwrap();
        let (head, _) = good.split_once("\r\n\r\n").unwrap();
        let head: Vec<_> = head.lines().filter(|l| !l.starts_with("content-length")).collect();
        for (n, field) in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1, 1",
            "Transfer-Encoding: identity",
            "Content-Length: 1\r\nx-odd: a\0",
        ]
        .into_iter()
        .enumerate()
        {
            let bytes = format!("{}\r\n{field}\r\n\r\nx", head.join("\r\n"));
            assert_eq!(raw(gateway.address, bytes.as_bytes()).status, 400, "{field:?}");
            let seen = e2e::eventually("the record", || {
                let found = gateway.records();
                let refused = found.iter().filter(|record| record["reason"] == "malformed-request");
                Some(refused.count()).filter(|count| *count > n)
            });
            assert_eq!(seen, n + 1, "{field:?}");
        }
        // One that is too long.
        let many = (0..120).map(|n| format!("x-{n}: a")).collect::<Vec<_>>().join("\r\n");
        for field in [format!("x-long: {}", "a".repeat(40_000)), many] {
            let bytes = format!("{}\r\n{field}\r\n\r\n", head.join("\r\n"));
            assert_eq!(raw(gateway.address, bytes.as_bytes()).status, 431);
        }
        e2e::eventually("the records", || {
            let found = gateway.records();
            let refused = found.iter().filter(|record| record["status"] == 431);
            (refused.count() == 2).then_some(())
        });
        assert!(server.tool_calls().is_empty());
    }
}

#[test]
fn a_body_whose_length_is_told_in_two_ways_is_refused_and_recorded() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let good =
            String::from_utf8(ana.call_bytes(&json!(1), &json!({ "name": "read" }))).unwrap();
        let (head, body) = good.split_once("\r\n\r\n").unwrap();
        let length = body.len();
        let chunk = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
        let chunk = chunk.as_str();
        let head: Vec<_> = head.lines().filter(|l| !l.starts_with("content-length")).collect();
        let framed = |framing: &str, body: &str| {
            format!("{}\r\n{framing}\r\n\r\n{body}", head.join("\r\n")).into_bytes()
        };
        let sized = format!("Content-Length: {length}");
        let chunked = "Transfer-Encoding: chunked";
        for (framing, body) in
            [(sized.as_str(), body), (chunked, chunk), ("TRANSFER-encoding:\tChunked ", chunk)]
        {
            assert_eq!(raw(gateway.address, &framed(framing, body)).status, 200, "{framing}");
        }
        let before = server.tool_calls().len();
        for framing in [
            format!("{sized}\r\n{chunked}"),
            format!("{chunked}\r\n{sized}"),
            format!("{chunked}\r\nContent-Length: {}", chunk.len()),
            format!("Transfer-Encoding: identity\r\n{chunked}"),
            format!("{chunked}\r\n{chunked}"),
            "Transfer-Encoding: identity, chunked".to_owned(),
            "Transfer-Encoding: gzip, chunked".to_owned(),
        ] {
            // What comes after it on the connection is not taken for a request.
            let mut bytes = framed(&framing, chunk);
            bytes.extend_from_slice(good.as_bytes());
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
            stream.write_all(&bytes).unwrap();
            let answer = read(&mut stream);
            assert_eq!(
                (answer.status, answer.header("connection")),
                (400, Some("close")),
                "{framing}"
            );
            assert_eq!(gateway.last()["reason"], "ambiguous-framing", "{framing}");
        }
        let twice = raw(gateway.address, &framed(&format!("{sized}\r\n{sized}"), body));
        assert_eq!((twice.status, twice.header("connection")), (400, Some("close")));
        assert_eq!(server.tool_calls().len(), before);
        // Two requests on one connection, the first chunked, are what they seem to be.
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.set_read_timeout(Some(e2e::PATIENCE)).unwrap();
        for _ in 0..2 {
            stream.write_all(&framed(chunked, chunk)).unwrap();
            assert_eq!(read(&mut stream).status, 200);
            stream.write_all(good.as_bytes()).unwrap();
            assert_eq!(read(&mut stream).status, 200);
        }
    }
}

/// Events of a server that could be read as more than they are (vectors PV-33 to PV-35): one event
/// of ours for one message of the server's, whatever stands in it.
#[test]
fn nothing_in_a_message_can_end_an_event() {
    for era in ERAS {
        let server = Server::with(era, json!([tool("read")]), |call, stream| {
            let token = &call.body["params"]["_meta"]["progressToken"];
            let told = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\"progress\":1,\"message\":\"a\u{2028}\\n\\ndata: forged\u{85}\"}}}}"
            );
            let result = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\n\"result\":{{\"resultType\":\"complete\",\r\"content\":[]}}}}",
                call.body["id"]
            );
            let lines = |text: &str| text.replace(['\n', '\r'], "\ndata: ");
            let events = format!(
                ": a comment\r\nid: upstream\r\nevent: evil\r\nretry: 1\r\ndata: {told}\r\n\r\ndata: {}\n\n",
                lines(&result)
            );
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            // Cut at every byte.
            let mut good = stream.write_all(head.as_bytes()).is_ok();
            for byte in events.as_bytes() {
                good = good && stream.write_all(&[*byte]).is_ok();
            }
            false
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "read", "_meta": { "progressToken": "t" } });
        let answer = raw(gateway.address, &ana.call_bytes(&json!(7), &params));
        assert_eq!(answer.events().len(), 2, "{answer:?}");
        assert!(!answer.body.contains("upstream") && !answer.body.contains("evil"));
        assert_eq!(answer.json()["id"], 7);
        let progress = &answer.events()[0];
        assert!(progress.contains("forged") && progress.contains(r#""progressToken":"t""#));
    }
}

/// Vector PV-43: progress of somebody else, of nobody, or that goes backwards is not passed on.
#[test]
fn progress_goes_forward_and_is_the_callers_own() {
    for era in ERAS {
        let server = Server::with(era, json!([tool("read")]), |call, stream| {
            let token = &call.body["params"]["_meta"]["progressToken"];
            let mut events = String::new();
            for (token, progress) in [
                (token.clone(), json!(1)),
                (json!(token.to_string()), json!(2)),
                (json!(7), json!(3)),
                (token.clone(), json!(1)),
                (token.clone(), json!(0.5)),
                (token.clone(), json!("2")),
                (token.clone(), json!(2.5)),
            ] {
                let told = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": token, "progress": progress } });
                events.push_str(&format!("data: {told}\n\n"));
            }
            let result = json!({ "resultType": "complete", "content": [] });
            let done = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result });
            let text = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}data: {done}\n\n"
            );
            drop(stream.write_all(text.as_bytes()));
            false
        });
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let params = json!({ "name": "read", "_meta": { "progressToken": "t" } });
        let answer = raw(gateway.address, &ana.call_bytes(&json!(7), &params));
        let told: Vec<_> = answer.events();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains(r#""progress":1}"#) && told[1].contains(r#""progress":2.5}"#));
    }
}

/// A client that sends its body in a piece of its own does not find the connection gone under its next
/// request; where a body is not read, it is told that the connection ends.
#[test]
fn a_client_that_is_refused_can_go_on_or_is_told_that_it_cannot() {
    let (server, gateway) = started();
    let client = gateway.client(Era::Modern, ANA);
    let good = client.call_bytes(&json!(1), &json!({ "name": "read", "arguments": {} }));
    let text = String::from_utf8(good.clone()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let stranger = head.replace(ANA, "nobody");
    assert_ne!(stranger, head);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    for _ in 0..20 {
        stream.write_all(format!("{stranger}\r\n\r\n").as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let refused = read(&mut stream);
        assert_eq!((refused.status, refused.header("connection")), (401, None));
    }
    stream.write_all(&good).unwrap();
    assert_eq!(read(&mut stream).status, 200);
    assert_eq!(server.tool_calls().len(), 1);
    // Nobody waits for a long body of a stranger, nor for one that does not come.
    for length in ["content-length: 1000000", "transfer-encoding: chunked"] {
        let lines: Vec<_> = stranger
            .lines()
            .map(|line| if line.starts_with("content-length") { length } else { line })
            .collect();
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).unwrap();
        let refused = read(&mut stream);
        assert_eq!((refused.status, refused.header("connection")), (401, Some("close")));
    }
}

#[test]
fn what_no_name_and_no_query_needs_is_refused_before_it_is_read() {
    for era in ERAS {
        let server = Server::echo(era, &["read"]);
        let gateway = Config::of(&server.url()).start();
        let ana = gateway.client(era, ANA);
        let complete = |name: &str| {
            let params = json!({ "ref": { "type": "ref/prompt", "name": name }, "argument": { "name": "a", "value": "" } });
            ana.ask("completion/complete", params)
        };
        let long = complete(&"n".repeat(8193));
        assert_eq!(long.code(), -32602, "{long:?}");
        assert!(long.body.contains("longer than 8192 bytes"), "{long:?}");
        assert!(!complete(&"n".repeat(8192)).body.contains("8192 bytes"));
        if era == Era::Legacy {
            let named = ana.call(&"n".repeat(8193), &json!({}));
            assert!(named.body.contains("longer than 8192 bytes"), "{named:?}");
        }
        let get = |query: &str| {
            let head = format!(
                "GET /mcp?{query} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ANA}\r\nconnection: close\r\n\r\n"
            );
            raw(gateway.address, head.as_bytes()).status
        };
        assert_ne!(get(&"&".repeat(63)), 400, "{era:?}");
        assert_eq!(get(&"&".repeat(64)), 400, "{era:?}");
    }
}
