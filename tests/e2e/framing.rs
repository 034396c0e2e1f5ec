//! Bytes that are no acceptable request: each a clear answer, a record, and nothing sent on.

use std::io::Write as _;
use std::net::TcpStream;

use e2e::client::{get, post, raw, read};
use e2e::gateway::{ANA, Config, Gateway};
use e2e::server::Server;
use e2e::{ERAS, Era};
use serde_json::json;

fn started() -> (Server, Gateway) {
    let server = Server::echo(Era::Modern, &["read"]);
    let gateway =
        Config::of(&server.url()).limits("requestBody: 64KiB\nrequestTime: 300ms").start();
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
        ("POST", "/mcp", vec![good[0], ("accept", "application/json")], hello, (406, "accept")),
        ("POST", "/mcp", vec![good[0]], hello, (406, "accept")),
        ("POST", "/mcp/", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "//mcp", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "/%6dcp", good.to_vec(), hello, (404, "unknown-route")),
        ("POST", "/x/../mcp", good.to_vec(), hello, (404, "unknown-route")),
        ("GET", "/mcp", good.to_vec(), "", (400, "session")),
        ("GET", "/mcp", vec![("accept", "application/json")], "", (406, "accept")),
        (
            "GET",
            "/mcp",
            vec![good[1], ("mcp-protocol-version", "2026-07-28")],
            "",
            (405, "http-method"),
        ),
        ("PUT", "/mcp", good.to_vec(), hello, (405, "http-method")),
        ("DELETE", "/mcp", good.to_vec(), "", (400, "session")),
        ("POST", "/mcp", good.to_vec(), "", (400, "json")),
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
                "json",
            ),
            (
                "an escaped duplicate",
                change("\"name\":\"read\"", "\"name\":\"read\",\"n\\u0061me\":\"drop\""),
                -32600,
                "json",
            ),
            (
                "a duplicate in arguments",
                change("\"text\":\"x\"", "\"text\":\"x\",\"text\":\"y\""),
                -32600,
                "json",
            ),
            (
                "another case",
                change("\"name\":\"read\"", "\"name\":\"read\",\"Name\":\"drop\""),
                -32600,
                "message",
            ),
            (
                "a long s",
                change("\"arguments\"", "\"argument\u{17f}\":{},\"arguments\""),
                -32600,
                "message",
            ),
            ("envelope in another case", change("\"method\"", "\"Method\""), -32600, "message"),
            (
                "an unknown member",
                change("\"jsonrpc\"", "\"extra\":1,\"jsonrpc\""),
                -32600,
                "message",
            ),
            ("a batch", format!("[{good}]"), -32600, "message"),
            ("an empty batch", "[]".to_owned(), -32600, "message"),
            ("a lone surrogate", change("\"x\"", "\"\\ud800\""), -32700, "json"),
            ("a byte order mark", format!("\u{feff}{good}"), -32700, "json"),
            ("two texts", format!("{good}{good}"), -32700, "json"),
            ("a trailing comma", change("\"text\":\"x\"", "\"text\":\"x\","), -32700, "json"),
            ("a comment", format!("{good}//"), -32700, "json"),
            ("a number that is none", change("\"x\"", "NaN"), -32700, "json"),
            ("a leading zero", change("\"x\"", "01"), -32700, "json"),
            (
                "too deep",
                change("\"arguments\":{", &deep).replacen("]\"text\"", "],\"text\"", 1),
                -32600,
                "json",
            ),
            ("an id of null", change("\"id\":7", "\"id\":null"), -32600, "message"),
            ("a fractional id", change("\"id\":7", "\"id\":7.5"), -32600, "message"),
            ("result and method", change("\"id\":7", "\"id\":7,\"result\":{}"), -32600, "message"),
            (
                "NUL in a name",
                change("\"read\"", "\"re\\u0000ad\""),
                if era == Era::Modern { -32020 } else { -32602 },
                if era == Era::Modern { "header-mismatch" } else { "params" },
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
    let metrics = get(ops, "/metrics").body;
    for line in [
        "portcullis_exchanges_total{outcome=\"answered\"} 1",
        "portcullis_exchanges_total{outcome=\"denied\"} 1",
        "portcullis_denials_total{reason=\"unknown-tool\"} 1",
        "portcullis_upstream_up{server=\"up\"} 1",
        "portcullis_upstream_duration_seconds_count{server=\"up\"} 1",
        "portcullis_overhead_seconds_count{} 2",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert_eq!(get(ops, "/mcp").status, 404);
    drop(server);
}
